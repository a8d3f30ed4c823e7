//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/test/states"
)

// suspend stops a repolock and its command as Ctrl-Z does, waits, and continues them as fg does.
func (o *outage) suspend(wait time.Duration) (took time.Duration) {
	o.t.Helper()
	signal := func(sig syscall.Signal) {
		o.t.Helper()
		if err := o.cmd.Process.Signal(sig); err != nil {
			o.t.Fatal(err)
		}
	}
	signal(syscall.SIGTSTP)
	o.until("repolock to be stopped", func() bool { return states.Stopped(o.cmd.Process.Pid) })
	begin := time.Now() // the first record is older
	if records := o.records(); records[len(records)-1].Event != audit.Suspended {
		o.t.Errorf("the last record of a stopped repolock is %s", records[len(records)-1].Event)
	}
	if !strings.Contains(o.history(), "stopped since 20") {
		o.t.Errorf("history:\n%s", o.history())
	}
	time.Sleep(wait)
	took = time.Since(begin)
	signal(syscall.SIGCONT)
	o.until("the command to go on", o.ticks)
	return took
}

// stoppedFor checks the length of the only stop in the log, which repolock and its command have been
// stopped for at least.
func (o *outage) stoppedFor(least time.Duration) {
	o.t.Helper()
	spans := audit.NewHistory(o.records()).Spans
	if d := spans[0].StoppedFor(); len(spans[0].Stops) != 1 || d < least {
		o.t.Errorf("stopped %+v, and not for %v", spans[0].Stops, least)
	}
	if !strings.Contains(o.history(), "success; stopped for ") {
		o.t.Errorf("history:\n%s", o.history())
	}
}

// TestAuditSuspended: the log has the begin and the end of a stop by Ctrl-Z, and history its
// length.
func TestAuditSuspended(t *testing.T) {
	o := newOutage(t)
	o.around("1h", "--", "ticker")
	took := o.suspend(2 * time.Second)
	if code := o.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	r := o.log(audit.Acquired, audit.Suspended, audit.Continued, audit.Released)
	for _, r := range r[1:3] {
		if r.RequestID == "" || r.Operation != "prune" || r.PID != o.cmd.Process.Pid {
			t.Errorf("%+v", r)
		}
	}
	o.stoppedFor(took)
}

// TestAuditSuspendedAndLost: if the lock is lost meanwhile, the stop lasts until the command goes
// on under the resumed lock.
func TestAuditSuspendedAndLost(t *testing.T) {
	o := newOutage(t)
	o.around("10s", "--", "ticker")
	took := o.suspend(11 * time.Second)
	if code := o.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	var stops []string
	for _, r := range o.records() {
		switch r.Event {
		case audit.Suspended, audit.Lost, audit.Resumed, audit.Continued, audit.Released:
			stops = append(stops, r.Event)
		}
	}
	if got := strings.Join(stops, " "); got != "command_suspended lock_lost lock_resumed command_continued lock_released" {
		t.Errorf("logged: %s", got)
	}
	o.stoppedFor(took)
}
