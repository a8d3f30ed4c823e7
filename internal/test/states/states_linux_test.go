package states

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestStates: a process is seen as it runs, is stopped with all its threads, is a zombie, and is reaped.
func TestStates(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	assert.OK(t, cmd.Start())
	pid := cmd.Process.Pid
	reaches := func(state string) {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); Of(pid) != state && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		}
		assert.Equal(t, Of(pid), state)
		assert.Equal(t, Stopped(pid), state == "T", "stopped, in the state %q", state)
		assert.Equal(t, AllStopped(pid), state == "T", "all stopped, in the state %q", state)
	}
	reaches("S")
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	reaches("T")
	_ = syscall.Kill(pid, syscall.SIGKILL)
	reaches("Z")
	_ = cmd.Wait()
	reaches("")
}
