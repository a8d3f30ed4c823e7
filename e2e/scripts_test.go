//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/internal/test/states"
)

// TestLocalScript runs the script of the README. It first prints what it will do and cost, counts while Go
// builds, and ends with a picture of the run.
func TestLocalScript(t *testing.T) {
	rounds.Long(t, "it builds slowly on purpose")
	t.Parallel()
	program, err := exec.LookPath("go")
	assert.OK(t, err)
	slow := t.TempDir()
	stub := "#!/bin/sh\nif [ $1 = build ]; then printf 'one\\ntwo\\n' >&2; sleep 9; fi\nexec " + program + ` "$@"` + "\n"
	assert.OK(t, os.WriteFile(filepath.Join(slow, "go"), []byte(stub), 0o700))
	said := in(t, ".", "sh local.sh", "PATH="+slow+":"+os.Getenv("PATH"))
	t.Logf("%s", said)
	begins := regexp.MustCompile(`(?s)^This builds repolock.* about \d+ MB.*\nmodules downloaded: \d+, \d+ s\npackages compiled: 2 of at most \d{3}, \d+ s\n`)
	assert.That(t, begins.MatchString(said), "it doesn't say what it does")
	_, picture, _ := strings.Cut(said, "== what happened")
	for _, line := range strings.Split(picture, "\n") {
		assert.That(t, len(line) <= 80, "a line of %d columns: %s", len(line), line)
	}
	if !regexp.MustCompile(`
backup shared +\.*#+ +success
backup shared +\.*#+ +success
prune  exclusive +x +refused
prune  exclusive +\.*#+ +success
backup shared +\.*#\?+ +no end: it was killed
prune  exclusive +\.*#+ +success
`).MatchString(picture) {
		t.Errorf("the picture isn't that of the run:%s", picture)
	}
}

// TestAloud: the script prints its steps, keeps its exit code, and leaves no process, however
// it ends.
func TestAloud(t *testing.T) {
	rounds.Long(t, "it waits for what is printed each 8 s")
	aloud, err := filepath.Abs("aloud.sh")
	assert.OK(t, err)
	// A shell that was just forked can lose a signal that its parent traps: the program must run.
	const sleeps = "aloud reading; sh -c 'echo sleeps; exec sleep 600'"
	for _, c := range []struct {
		script string
		signal syscall.Signal
		code   int
		says   string
	}{
		{`aloud first; aloud reading "two words"; until [ -e done ]; do sleep 0.1; done; quiet; exit 3`, 0, 3, "still reading two words, "},
		{"aloud reading; exit 3", 0, 3, ""},
		{"aloud reading; false; echo on", 0, 1, ""},
		{sleeps, syscall.SIGINT, 130, "sleeps\n"},
		{sleeps, syscall.SIGTERM, 143, "sleeps\n"},
	} {
		t.Run(c.script, func(t *testing.T) {
			s := newSite(t)
			p := s.run(exec.Command("sh", "-euc", ". "+aloud+"; trap quiet EXIT; trap 'exit 130' INT; trap 'exit 143' TERM; "+c.script))
			t.Cleanup(func() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) })
			p.says(c.says)
			if c.signal != 0 {
				assert.OK(t, syscall.Kill(-p.Process.Pid, c.signal))
			}
			s.touch("done")
			p.exits(c.code)
			assert.That(t, !strings.Contains(p.stderr.String(), "still first"), "it printed %q", p.stderr.String())
			s.until("all processes to end", func() bool { return states.Ended(p.Process.Pid) })
		})
	}
}
