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

// forks allows repolock to fork, or forbids it by a limit on its user's processes. Running
// processes have a limit of their own.
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
	// The user itself can always do that; in some containers root can't.
	cmd := exec.Command("prlimit", "--pid", fmt.Sprint(o.cmd.Process.Pid), limit)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: o.as}
	if out, err := cmd.CombinedOutput(); err != nil {
		o.t.Fatalf("%v: %s", err, out)
	}
}

// TestUnguarded: the guard is killed, and fork fails for longer than a few tries take. The
// command is stopped meanwhile, and continues when there is a guard again.
func TestUnguarded(t *testing.T) {
	t.Parallel()
	for _, onLost := range []string{"pause", "term", "kill", "warn"} {
		t.Run(onLost, func(t *testing.T) {
			o := newOrdinaryOutage(t)
			o.prune("60s", "true", "--on-lost", onLost)
			old := 0
			o.until("a guard", func() bool { old = o.guard(); return old != 0 }) // or the signal would be for our own group
			o.forks(false)
			if err := unix.Kill(old, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			want := []string{audit.Acquired, audit.GuardLost, audit.GuardReplaced, audit.Released}
			if onLost == "warn" {
				o.until("the message of the loss", func() bool { return o.says("the command runs on (--on-lost warn)") })
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
			o.until("another guard's process", func() bool { g := o.guard(); return g != 0 && g != old })
			if code := o.code(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			for _, said := range []string{"no guard watches the command: start the guard /proc/self/exe: resource temporarily unavailable", "a guard watches the command again"} {
				if n := strings.Count(o.output.String(), said); n != 1 {
					t.Errorf("%d such messages: %s", n, said)
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
