package daemon

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/identity"
)

// TestRecycled: a later process with the same pid is another owner, and isn't signalled.
func TestRecycled(t *testing.T) {
	sleeper := exec.Command("sleep", "1000")
	must(t, sleeper.Start())
	defer func() { _, _ = sleeper.Process.Kill(), sleeper.Wait() }()
	p, _ := identity.Of(sleeper.Process.Pid)
	p.PIDStart--
	o := Watch(p)
	if !ended(o, hang) {
		t.Error("it is watched")
	}
	// Without pidfds a signal can only go to a pid.
	for _, o := range []*Owner{o, {process: p, handle: &os.Process{Pid: p.PID}}} {
		if o.Signal(syscall.SIGKILL) == nil {
			t.Error("it is signalled")
		}
	}
	p.PIDStart++
	if ended(Watch(p), time.Second) {
		t.Error("it was killed")
	}
}
