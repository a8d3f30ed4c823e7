//go:build unix

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/audit"
)

// part begins an outage in which the wall clock is stepped by more than a minute.
func part(t *testing.T) *outage {
	t.Helper()
	o := newOutage(t)
	o.env = []string{stepVariable + "=" + o.path("step")}
	o.prune("60s", "touch went-on")
	o.rename("repo", "away")
	write(t, o.path("step.new"), "71s")
	o.rename("step.new", "step")
	o.until("the command to be stopped", func() bool { return !o.ticks() })
	return o
}

// TestClocksPart: if the clocks part, as on a machine that its hypervisor paused, the command
// is stopped, and continues once a look has found the lock.
func TestClocksPart(t *testing.T) {
	o := part(t)
	if o.ticks() {
		t.Error("it runs on before the lock was looked at")
	}
	o.rename("away", "repo")
	o.until("the command to go on", o.ticks)
	if code := o.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"the command is stopped until the lock was looked at", "the command goes on"} {
		if strings.Count(o.output.String(), want) != 1 {
			t.Errorf("not exactly one such message: %s", want)
		}
	}
	r := o.log(audit.Acquired, audit.ClocksParted, audit.ClocksSettled, audit.Released)
	if parted := r[1]; parted.RequestID != r[0].RequestID || parted.LockPath != r[0].LockPath || parted.PID != o.cmd.Process.Pid {
		t.Errorf("%+v", parted)
	}
	if h := o.history(); !strings.Contains(h, "success; stopped for ") {
		t.Errorf("history:\n%s", h)
	}
}

// TestClocksPartAndLockIsBroken: if another holder was let in meanwhile, the command doesn't
// continue.
func TestClocksPartAndLockIsBroken(t *testing.T) {
	o := part(t)
	for _, args := range [][]string{{"break-lock", "--yes"}, {"prune", "--", "true"}} {
		if out, err := o.command("away", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	write(t, o.path("end"), "")
	o.rename("away", "repo")
	if code := o.code(); code != exitLost {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(o.path("went-on")); err == nil {
		t.Error("the command went on")
	}
}
