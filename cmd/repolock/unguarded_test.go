//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/audit"
)

// forks allows repolock to fork, or forbids it: its user has too many processes. What
// runs already has a limit of its own.
func (o *outage) forks(allowed bool) {
	o.t.Helper()
	limit := "--nproc=1:"
	if allowed {
		var own unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil {
			o.t.Fatal(err)
		}
		limit = fmt.Sprintf("--nproc=%d:", int64(own.Cur))
	}
	// Its own user may always do that; root may not in every container.
	cmd := exec.Command("prlimit", "--pid", fmt.Sprint(o.cmd.Process.Pid), limit)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: o.as}
	if out, err := cmd.CombinedOutput(); err != nil {
		o.t.Fatalf("%v: %s", err, out)
	}
}

// The guard is killed, and none can be forked for longer than a few tries take. The
// command is stopped meanwhile, and goes on with the guard that there is at last.
func TestUnguarded(t *testing.T) {
	for _, onLost := range []string{"pause", "term", "kill", "warn"} {
		t.Run(onLost, func(t *testing.T) {
			o := newOrdinaryOutage(t)
			o.prune("60s", "true", "--on-lost", onLost)
			old := o.guard()
			o.forks(false)
			if err := unix.Kill(old, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			want := []string{audit.Acquired, audit.GuardLost, audit.GuardReplaced, audit.Released}
			if onLost == "warn" {
				o.until("the loss to be said", func() bool { return o.says("the command runs on (--on-lost warn)") })
				if !o.ticks() {
					t.Error("it was stopped")
				}
			} else {
				killed := time.Now()
				o.until("the command to be stopped", func() bool { return !o.ticks() })
				t.Logf("stopped for a second %v after the guard's death", time.Since(killed).Round(time.Millisecond))
				for range 3 {
					if o.ticks() {
						t.Error("it runs without a guard")
					}
				}
			}
			o.forks(true)
			o.until("the command to go on", o.ticks)
			o.until("another guard", func() bool { return o.says("a guard watches the command again") })
			if o.guard() == 0 || o.guard() == old {
				t.Errorf("the guard is %d, and was %d", o.guard(), old)
			}
			if code := o.code(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			for _, said := range []string{"no guard watches the command: start the guard /proc/self/exe: resource temporarily unavailable", "a guard watches the command again"} {
				if n := strings.Count(o.output.String(), said); n != 1 {
					t.Errorf("said %d times: %s", n, said)
				}
			}
			r := o.log(want...)
			if lost := r[1]; lost.RequestID != r[0].RequestID || !strings.Contains(lost.Error, "resource temporarily unavailable") || (lost.Action == audit.CommandStopped) != (onLost != "warn") {
				t.Errorf("%+v", lost)
			}
			if h := o.history(); strings.Contains(h, "stopped for ") != (onLost != "warn") {
				t.Errorf("history:\n%s", h)
			}
		})
	}
}
