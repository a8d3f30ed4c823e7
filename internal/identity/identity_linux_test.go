package identity

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/procstat"
	"github.com/repolock/repolock/internal/test/assert"
)

func TestSelf(t *testing.T) {
	p := Self()
	if p.Hostname == "" || p.PID <= 1 || len(p.BootID) != 36 || !strings.HasPrefix(p.PIDNamespace, "pid:[") ||
		p.TimeNamespace == "" || p.PIDStart == 0 || p.User == "" {
		t.Errorf("%+v", p)
	}
	if p.HostID != "" && (len(p.HostID) != 32 || p.HostID == machineID()) {
		t.Errorf("the host id must be a hash: %q", p.HostID)
	}
	assert.That(t, p == Self(), "another one at the second look")
}

// TestGone: Gone reports only processes that have certainly ended.
func TestGone(t *testing.T) {
	self := Self()
	self.HostID = "this machine" // a container needn't have an id
	sleeper := exec.Command("sleep", "100")
	assert.OK(t, sleeper.Start())
	other := self
	other.PID = sleeper.Process.Pid
	running, ok := readStat(other.PID)
	if !ok || running.Ended {
		t.Fatalf("of a process that runs: %+v, %v", running, ok)
	}
	other.PIDStart = running.Start
	change := func(f func(*Process)) Process { p := other; f(&p); return p }
	for name, c := range map[string]struct {
		p    Process
		gone bool
	}{
		"itself":            {self, false},
		"a process":         {other, false},
		"recycled pid":      {change(func(p *Process) { p.PIDStart-- }), true},
		"unknown start":     {change(func(p *Process) { p.PIDStart = 0 }), false},
		"process 1":         {change(func(p *Process) { p.PID, p.PIDStart = 1, 0 }), false},
		"no pid":            {change(func(p *Process) { p.PID = 0 }), false},
		"never a pid":       {change(func(p *Process) { p.PID = 1 << 30 }), true},
		"another machine":   {change(func(p *Process) { p.PID, p.HostID = 1<<30, "a clone of it" }), false},
		"another boot":      {change(func(p *Process) { p.PID, p.BootID = 1<<30, "x" }), false},
		"unknown boot":      {change(func(p *Process) { p.PID, p.BootID = 1<<30, "" }), false},
		"another namespace": {change(func(p *Process) { p.PID, p.PIDNamespace = 1<<30, "pid:[1]" }), false},

		"another time namespace":                {change(func(p *Process) { p.PID, p.TimeNamespace = 1<<30, "time:[1]" }), false},
		"unknown time namespace":                {change(func(p *Process) { p.PID, p.TimeNamespace = 1<<30, "" }), false},
		"another start and time namespace":      {change(func(p *Process) { p.PIDStart, p.TimeNamespace = p.PIDStart-1, "time:[1]" }), false},
		"another start, unknown time namespace": {change(func(p *Process) { p.PIDStart, p.TimeNamespace = p.PIDStart-1, "" }), false},
	} {
		if got := self.Gone(c.p); got != c.gone {
			t.Errorf("%s: gone %v, want %v", name, got, c.gone)
		}
	}
	assert.OK(t, sleeper.Process.Kill())
	for end := time.Now().Add(10 * time.Minute); !self.Gone(other); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a process that was killed and not reaped isn't gone")
		}
	}
	_ = sleeper.Wait()
	assert.That(t, self.Gone(other), "a process that was killed and reaped isn't gone")
	if elsewhere := change(func(p *Process) { p.TimeNamespace = "time:[1]" }); self.Gone(elsewhere) {
		t.Error("a process of another time namespace is gone, because there is none of its pid")
	}
	for what, forget := range map[string]func(*Process){
		"boots": func(p *Process) { p.BootID = "" }, "machines": func(p *Process) { p.HostID = "" },
	} {
		unknown := self
		forget(&unknown)
		assert.That(t, !unknown.Gone(change(forget)), "two unknown %s are taken for the same", what)
	}
}

// TestUnknownStartIsNoEnd: a process whose start the system doesn't show hasn't ended.
func TestUnknownStartIsNoEnd(t *testing.T) {
	self, read := Self(), readStat
	defer func() { readStat = read }()
	readStat = func(int) (procstat.Stat, bool) { return procstat.Stat{}, true }
	assert.That(t, !self.Ended(), "it has ended")
}

// TestOf: Of returns an identity that Gone and Ended can judge.
func TestOf(t *testing.T) {
	self := Self()
	self.User = ""
	if p, ok := Of(self.PID); !ok || p != self || p.Ended() {
		t.Errorf("%+v %v, want %+v", p, ok, self)
	}
	if p, ok := Of(1); !ok || p.PIDStart == self.PIDStart {
		t.Errorf("process 1: %+v %v", p, ok)
	}
	for _, pid := range []int{-1, 0, 1 << 30} {
		if _, ok := Of(pid); ok {
			t.Errorf("there is a process %d", pid)
		}
	}
	done := exec.Command("true")
	assert.OK(t, done.Start())
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(time.Millisecond) {
		if _, ok := Of(done.Process.Pid); !ok {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a zombie is a process")
		}
	}
	_ = done.Wait()
}
