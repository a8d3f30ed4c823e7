//go:build unix

package main

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/test/states"
)

// haltVariable names a file. When repolock has resumed its lock, it creates the file and stops
// itself, once.
const haltVariable = "REPOLOCK_TEST_HALT"

func init() {
	repolock := programs["repolock"]
	programs["repolock"] = func() {
		if file := os.Getenv(haltVariable); file != "" {
			session.Resumed = haltOnce(file)
		}
		repolock()
	}
}

func haltOnce(file string) func() {
	return sync.OnceFunc(func() {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			panic(err)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(100 * time.Millisecond) // the signal can be delivered a moment later
	})
}

// halted waits until repolock has stopped itself. A SIGCONT that is sent before that is lost.
func (o *outage) halted() {
	o.t.Helper()
	o.until("the lock to be resumed", func() bool { _, err := os.Stat(o.path("halted")); return err == nil })
	o.until("repolock to be stopped", func() bool { return states.Of(o.cmd.Process.Pid) == "T" })
}

// TestEndedWhenResumed: a command that ends just when it is to go on has ended under the lock that
// was resumed: its exit code counts, and no loss.
func TestEndedWhenResumed(t *testing.T) {
	o := newOutage(t) // in parallel
	o.env = []string{haltVariable + "=" + o.path("halted")}
	o.prune("10s", "touch went-on")
	o.rename("repo", "away")
	o.until("the command to be stopped", func() bool { return !o.ticks() })
	o.rename("away", "repo")
	o.halted()
	raw, err := os.ReadFile(o.path("pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err == nil {
		err = syscall.Kill(-pid, syscall.SIGKILL)
	}
	if err == nil {
		err = o.cmd.Process.Signal(syscall.SIGCONT)
	}
	if err != nil {
		t.Fatal(err)
	}
	if code := o.code(); code != 128+int(syscall.SIGKILL) {
		t.Errorf("exit code %d, want that of a command killed by signal 9", code)
	}
}

// TestLostAgainWhenResumed: the lease of a resumed lock runs out before repolock continues the
// command. Repolock must resume from that loss too, until --resume-for is over.
func TestLostAgainWhenResumed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		resumeFor string
		wait      time.Duration
		passed    bool
		code      int
	}{
		"resumed again":      {"10m", 11 * time.Second, false, 0},
		"passed":             {"10m", 11 * time.Second, true, exitLost},
		"resume-for is over": {"40s", 41 * time.Second, false, exitLost},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutage(t)
			o.env = []string{haltVariable + "=" + o.path("halted")}
			o.prune("10s", "touch went-on", "--resume-for", test.resumeFor)
			o.rename("repo", "away")
			o.until("the command to be stopped", func() bool { return !o.ticks() })
			o.rename("away", "repo")
			o.halted()
			time.Sleep(test.wait)
			if test.passed {
				if out, err := o.command("repo", "prune", "--ttl", "10s", "--wait", "1m", "--", "true").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			if err := o.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if test.code == 0 {
				o.until("the command to go on", o.ticks)
			}
			if code := o.code(); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if _, err := os.Stat(o.path("went-on")); (err == nil) != (test.code == 0) {
				t.Errorf("the command went on: %t", err == nil)
			}
			if test.code != 0 {
				return
			}
			r := o.log(audit.Acquired, audit.Lost, audit.Paused, audit.Resumed, audit.Lost, audit.Paused, audit.Resumed, audit.Released)
			if r[6].ResumedFrom != r[3].RequestID || r[5].RequestID != r[3].RequestID || r[7].RequestID != r[6].RequestID {
				t.Errorf("%+v", r)
			}
			if h := o.history(); strings.Count(h, "\n") != 2 || !strings.Contains(h, "success; stopped for ") {
				t.Errorf("history:\n%s", h)
			}
		})
	}
}
