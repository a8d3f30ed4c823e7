//go:build linux && programs

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/audit"
)

func init() { standIns["as-root"] = asRoot }

// asRoot is a setuid program that becomes root entirely, as sudo does, so that no other user
// can signal it. It writes its pid, and ticks until there is a file "end".
func asRoot([]string) error {
	if err := syscall.Setreuid(0, 0); err != nil {
		return err
	}
	for {
		if _, err := os.Stat("end"); err == nil {
			return nil
		}
		f, err := os.OpenFile("root-ticks", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		fmt.Fprintln(f, os.Getpid())
		f.Close()
		time.Sleep(50 * time.Millisecond)
	}
}

// rootsProcess is a site in which the repolock of an ordinary user runs a process of root.
type rootsProcess struct {
	*site
	*process
	as *syscall.Credential
}

func newRootsProcess(t *testing.T) *rootsProcess {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test must be run as root: it makes a setuid program")
	}
	s := newSite(t)
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	// Other users can't open the directory of the tests.
	if s.dir, err = os.MkdirTemp("/tmp", "repolock"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(s.dir) })
	s.repo = s.path("repo")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	make := exec.Command("sh", "-euc", `
install -m 755 "$0" repolock
install -m 4755 "$1" as-root
mkdir -m 700 repo
chown "$2" . repo
chmod 755 .`, filepath.Join(bin, "repolock"), self, fmt.Sprintf("%d:%d", uid, gid))
	make.Dir = s.dir
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return &rootsProcess{site: s, as: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// start runs repolock as the ordinary user.
func (o *rootsProcess) start(args ...string) {
	o.t.Helper()
	cmd := exec.Command(o.path("repolock"), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: o.as}
	o.process = o.site.run(cmd)
}

func (o *rootsProcess) says(text string) bool { return strings.Contains(o.stderr.String(), text) }

// ticks reports whether the rest of the command runs.
func (o *rootsProcess) ticks() bool {
	size := func() int {
		text, _ := os.ReadFile(o.path("ticks"))
		return len(text)
	}
	before := size()
	time.Sleep(time.Second)
	return size() > before
}

// code lets the command end, and returns repolock's exit code.
func (o *rootsProcess) code() int {
	o.t.Helper()
	o.touch("end")
	return o.process.code()
}

// records returns all records of the log.
func (o *rootsProcess) records() []audit.Record {
	o.t.Helper()
	file, err := os.Open(o.path("log"))
	if err != nil {
		o.t.Fatal(err)
	}
	defer file.Close()
	records, skipped, err := audit.Read(file)
	if err != nil || skipped > 0 {
		o.t.Fatalf("%d lines skipped, %v", skipped, err)
	}
	return records
}

// rootTicks reports whether root's process runs, and returns its pid.
func (o *rootsProcess) rootTicks() (pid int, runs bool) {
	read := func() (lines []string) {
		text, _ := os.ReadFile(o.path("root-ticks"))
		return strings.Fields(string(text))
	}
	before := len(read())
	time.Sleep(time.Second)
	after := read()
	if len(after) == before {
		return 0, false
	}
	pid, _ = strconv.Atoi(after[len(after)-1])
	return pid, true
}

// TestCannotBeSignalled: one process of the command can't be signalled, and the others can.
// repolock warns again and again that the process runs on, when it stops the others and when
// it kills them.
func TestCannotBeSignalled(t *testing.T) {
	o := newRootsProcess(t)
	o.start("prune", "--ttl", "10s", "--resume-for", "25s", "--audit", o.path("log"), "--",
		"sh", "-c", "./as-root & while :; do echo >>ticks; sleep 0.1; done")
	o.reaches("the command to run", o.ticks)
	pid, runs := o.rootTicks()
	if !runs {
		t.Fatal("root's process doesn't run")
	}
	o.away()
	o.reaches("the command to be stopped", func() bool { return !o.ticks() })
	stopped := fmt.Sprintf("repolock: warning: 1 process of the command can't be stopped: pid %d; it runs on without the lock\n", pid)
	killed := strings.Replace(stopped, "stopped", "killed", 1)
	o.reaches("the warning", func() bool { return o.says(stopped) })
	if _, runs := o.rootTicks(); !runs {
		t.Error("root's process was stopped")
	}
	o.reaches("the warning again", func() bool { return strings.Count(o.stderr.String(), stopped) > 1 })
	o.reaches("the rest to be killed", func() bool { return o.says(killed) })
	if _, runs := o.rootTicks(); !runs {
		t.Error("root's process was killed")
	}
	if code := o.code(); code != 79 {
		t.Errorf("exit code %d", code)
	}
	var reasons []string
	for _, r := range o.records() {
		if r.Event == audit.RunsOn && slices.Equal(r.PIDs, []int{pid}) && r.RequestID != "" {
			reasons = append(reasons, r.Reason)
		}
	}
	if got := strings.Join(slices.Compact(slices.Clone(reasons)), " "); got != audit.NotStopped+" "+audit.NotKilled || len(reasons) < 3 {
		t.Errorf("logged: %q", reasons)
	}
}

// TestNoneCanBeSignalled: repolock warns if it can signal no process of the command.
func TestNoneCanBeSignalled(t *testing.T) {
	for onLost, what := range map[string]string{"kill": "killed", "term": "killed", "pause": "stopped"} {
		t.Run(onLost, func(t *testing.T) {
			o := newRootsProcess(t)
			o.start("prune", "--ttl", "10s", "--on-lost", onLost, "--audit", o.path("log"), "--", "./as-root")
			o.reaches("the command to run", func() bool { _, runs := o.rootTicks(); return runs })
			o.away()
			said := func() bool {
				return o.says(fmt.Sprintf("1 process of the command can't be %s: pid ", what)) && o.says("; it runs on without the lock")
			}
			o.reaches("the warning", said)
			if _, runs := o.rootTicks(); !runs {
				t.Error("it was stopped")
			}
			want := 79
			if onLost == "pause" { // the lock can be had back, and is held by the time that it ends
				o.back()
				o.reaches("the lock to be resumed", func() bool { return o.says("the lock was resumed") })
				want = 0
			}
			if code := o.code(); code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
		})
	}
}
