package identity

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procstat"
	"github.com/repolock/repolock/internal/test/assert"
)

// TestSelf: all fields are known, and don't change.
func TestSelf(t *testing.T) {
	p := Self()
	assert.That(t, p.Hostname != "" && p.PID > 1 && len(p.BootID) == 36 && strings.HasPrefix(p.PIDNamespace, "pid:[") && p.TimeNamespace != "" && p.PIDStart != 0 && p.User != "", "%+v", p)
	assert.That(t, p.HostID == "" || len(p.HostID) == 32 && p.HostID != machineID(), "the host id must be a hash: %q", p.HostID)
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
	assert.Need(t, ok && !running.Ended, "of a process that runs: %+v, %v", running, ok)
	other.PIDStart = running.Start
	change := func(f func(*Process)) Process { p := other; f(&p); return p }
	const never = 1 << 30 // no process has this pid
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
		"a group":           {change(func(p *Process) { p.PID = -never }), false}, // kill(2) would ask for a group
		"never a pid":       {change(func(p *Process) { p.PID = never }), true},
		"another machine":   {change(func(p *Process) { p.PID, p.HostID = never, "a clone of it" }), false},
		"another boot":      {change(func(p *Process) { p.PID, p.BootID = never, "x" }), false},
		"unknown boot":      {change(func(p *Process) { p.PID, p.BootID = never, "" }), false},
		"another namespace": {change(func(p *Process) { p.PID, p.PIDNamespace = never, "pid:[1]" }), false},

		"another time namespace":                {change(func(p *Process) { p.PID, p.TimeNamespace = never, "time:[1]" }), false},
		"unknown time namespace":                {change(func(p *Process) { p.PID, p.TimeNamespace = never, "" }), false},
		"another start and time namespace":      {change(func(p *Process) { p.PIDStart, p.TimeNamespace = p.PIDStart-1, "time:[1]" }), false},
		"another start, unknown time namespace": {change(func(p *Process) { p.PIDStart, p.TimeNamespace = p.PIDStart-1, "" }), false},
	} {
		assert.Equal(t, self.Gone(c.p), c.gone, name)
	}
	assert.OK(t, sleeper.Process.Kill())
	ends(t, sleeper.Process.Pid)
	assert.That(t, self.Gone(other), "a zombie isn't gone")
	_ = sleeper.Wait()
	assert.That(t, self.Gone(other), "a process that was reaped isn't gone")
	for what, forget := range map[string]func(*Process){
		"boots": func(p *Process) { p.BootID = "" }, "machines": func(p *Process) { p.HostID = "" },
	} {
		unknown := self
		forget(&unknown)
		assert.That(t, !unknown.Gone(change(forget)), "two unknown %s are taken for the same", what)
	}
}

// ends waits until a child is a zombie.
func ends(t *testing.T, pid int) {
	t.Helper()
	assert.OK(t, unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
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
	p, ok := Of(self.PID)
	assert.That(t, ok && p == self && !p.Ended(), "%+v %v, want %+v", p, ok, self)
	p, ok = Of(1)
	assert.That(t, ok && p.PIDStart != self.PIDStart, "process 1: %+v %v", p, ok)
	zombie := exec.Command("true")
	assert.OK(t, zombie.Start())
	ends(t, zombie.Process.Pid)
	for _, pid := range []int{-1, 0, 1 << 30, zombie.Process.Pid} {
		_, ok := Of(pid)
		assert.That(t, !ok, "there is a process %d", pid)
	}
	_ = zombie.Wait()
}

// TestCaller: the caller is the parent, or the shell whose copy the parent is.
func TestCaller(t *testing.T) {
	const env = "REPOLOCK_TEST_CALLER"
	if os.Getenv(env) != "" {
		fmt.Println(Caller())
		os.Exit(0)
	}
	t.Setenv(env, "1")
	out, err := exec.Command(os.Args[0], "-test.run=^TestCaller$").Output()
	assert.OK(t, err)
	assert.Equal(t, strings.TrimSpace(string(out)), fmt.Sprint(os.Getpid()), "of a child")
	out, err = exec.Command("sh", "-c", `T=$("$0" "-test.run=^TestCaller$" || exit); echo $T $$`, os.Args[0]).Output()
	assert.OK(t, err)
	caller, shell, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	assert.Equal(t, caller, shell, "of a child of a shell's copy")
}

// TestSameProgram: processes run the same program if it has the same file and arguments, and both still run.
func TestSameProgram(t *testing.T) {
	sleeps := func(arg string) int {
		cmd := exec.Command("sleep", arg)
		assert.OK(t, cmd.Start())
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		return cmd.Process.Pid
	}
	a, b, c := sleeps("100"), sleeps("100"), sleeps("101")
	for pid, want := range map[int]bool{a: true, b: true, c: false, os.Getpid(): false, 1 << 30: false} {
		assert.Equal(t, sameProgram(a, pid), want, "%d and %d", a, pid)
		assert.Equal(t, sameProgram(pid, a), want, "%d and %d", pid, a)
	}
	assert.That(t, !sameProgram(1<<30, 1<<30), "two that don't run")
}

// TestNoMachineID: machines without an id don't have the same hash of it.
func TestNoMachineID(t *testing.T) {
	assert.Equal(t, hash(""), "")
	assert.That(t, hash("a") != hash("b"), "two machines have one hash")
}
