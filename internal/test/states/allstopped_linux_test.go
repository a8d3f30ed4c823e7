package states

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestAllStopped: a process counts as stopped when its threads are, and not before.
func TestAllStopped(t *testing.T) {
	if AllStopped(os.Getpid()) {
		t.Error("this process counts as stopped")
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	for end := time.Now().Add(5 * time.Minute); !AllStopped(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a stopped process doesn't count as stopped")
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if AllStopped(pid) {
		t.Error("a process that is gone counts as stopped")
	}
}
