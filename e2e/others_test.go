//go:build linux && programs && !minio

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/docblocks"
)

// outcome is one fault whose outcome is certain: two are in together, or the lock of an ended
// holder is never freed, or neither.
type outcome struct {
	fault string
	// lease is long where a lock that frees itself must do so long before the holder's child
	// ends; "" is that of the page.
	lease          string
	twoIn, blocked int
}

// others are the locks of docs/torture-others.md.
var others = map[string]outcome{
	"flock":       {"kill-wrapper", "", 0, 0},
	"flock-o":     {"kill-wrapper", "1m", 1, 0},
	"mkdir":       {"kill-all", "", 0, 1},
	"redis":       {"kill-wrapper", "1m", 1, 0},
	"postgres":    {"kill-wrapper", "1m", 1, 0},
	"etcd":        {"kill-wrapper", "1m", 1, 0},
	"restic":      {"kill-all", "", 0, 1},
	"tower-fleet": {"kill-all", "", 0, 1},
	"cloudstic":   {"kill-wrapper", "2m", 1, 0},
	"repolock":    {"kill-wrapper", "", 0, 0},
}

// TestOthersPage runs each command of docs/torture-others.md for one round with one fault.
func TestOthersPage(t *testing.T) {
	page, err := docblocks.Read("../docs/" + "torture-others.md")
	if err != nil {
		t.Fatal(err)
	}
	const all, one = "make torture-others", "sh e2e/peers/torture.sh "
	var names []string
	for _, line := range page.Lines() {
		if line == all {
			continue
		}
		if strings.HasPrefix(line, "repolock torture --with ") {
			t.Run("by hand", func(t *testing.T) {
				verdict(t, outcome{"kill-all", "", 0, 0}, "sh", "-c", "cd "+t.TempDir()+" && PATH="+bin+":$PATH "+line+" --json --rounds 1 --faults kill-all")
			})
			continue
		}
		name, is := strings.CutPrefix(line, one)
		want, known := others[name]
		if !is || !known {
			t.Errorf("what must %q find?", line)
			continue
		}
		names = append(names, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			judged(t, name, want)
		})
	}
	script, err := os.ReadFile("peers/torture.sh")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(script), "\nnames=\""+strings.Join(names, " ")+"\"\n") || len(names) != len(others) {
		t.Errorf("%s judges other locks than %v", all, names)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil || !strings.Contains(string(makefile), "\n\t@sh e2e/peers/torture.sh all ") {
		t.Errorf("%s does something else: %v", all, err)
	}
}

// judged runs the judge of one lock.
func judged(t *testing.T, name string, want outcome) {
	args := []string{"sh", "peers/torture.sh", name, "--json", "--rounds", "1", "--clients", "2", "--faults", want.fault}
	if want.lease != "" {
		args = append(args, "--lease", want.lease)
	}
	verdict(t, want, args...)
}

// verdict runs a judge of one lock, which must have this outcome.
func verdict(t *testing.T, want outcome, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "REPOLOCK="+filepath.Join(bin, "repolock"), "TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	var result struct {
		Faults []struct {
			Fault                  string
			Rounds, Locks, Blocked int
			TwoIn                  int `json:"two_in"`
		}
		LeftOut  []struct{ Fault string } `json:"left_out"`
		Pictures []string
	}
	_, text, _ := strings.Cut("\n"+string(out), "\n{") // after the name
	if bad := json.Unmarshal([]byte("{"+text), &result); bad != nil {
		t.Fatalf("%v %v\n%s%s", err, bad, out, stderr.String())
	}
	code, wantCode := cmd.ProcessState.ExitCode(), 0
	if want.twoIn+want.blocked > 0 {
		wantCode = 78
	}
	var f outcome
	for _, r := range result.Faults {
		f = outcome{r.Fault, want.lease, r.TwoIn, r.Blocked}
	}
	if code != wantCode || f != want || len(result.Faults)+len(result.LeftOut) != 1 {
		t.Errorf("exit code %d, %+v, want %+v\n%s\n%s", code, f, want, strings.Join(result.Pictures, "\n"), stderr.String())
	}
}

// TestTortureClocks: a lock that goes by the wall clock is passed by a client whose clock is
// ahead. A lock that doesn't isn't, and a Go program that can't be deceived is left out.
func TestTortureClocks(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "lock.sh")
	if err := os.WriteFile(script, []byte(`dir=$1 now=$(date +%s)
shift
[ ! -e "$dir/lock" ] || [ $((now - $(cat "$dir/lock"))) -gt 60 ] || exit 75
echo "$now" >"$dir/lock"
"$@"
rm -f "$dir/lock"
`), 0o600); err != nil {
		t.Fatal(err)
	}
	repo := filepath.Join(dir, "repo")
	if err := os.Mkdir(repo, 0o700); err != nil {
		t.Fatal(err)
	}
	repolock := filepath.Join(bin, "repolock")
	torture := []string{repolock, "torture", "--json", "--clients", "2", "--rounds", "1", "--faults", "clock"}
	verdict(t, outcome{"clock", "", 1, 0}, append(torture, "--lease", "1m", "--with", "sh "+script+" "+dir+" {}")...)
	verdict(t, outcome{"clock", "", 0, 0}, append(torture, "--lease", "1s", "--with", "flock "+dir+"/flock {}")...)
	without := append(slices.Clone(torture[:len(torture)-1]), "clock,kill-all", "--clean", "rm -rf "+repo+"/index", "--lease", "10s",
		"--with", repolock+" -r "+repo+" -q run --exclusive --operation torture --ttl 10s -- {}")
	out, err := exec.CommandContext(t.Context(), without[0], without[1:]...).Output()
	if err != nil || !strings.Contains(string(out), `"left_out": [`) || !strings.Contains(string(out), "never asks libc") {
		t.Errorf("%v: %s", err, out)
	}
}
