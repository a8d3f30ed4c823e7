//go:build unix

package states

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestStates: a process is seen as it runs, is stopped, is a zombie, and is reaped.
func TestStates(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	reaches := func(want string) {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); Of(pid) != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it is %q, want %q", Of(pid), want)
			}
		}
	}
	reaches("S")
	if Stopped(pid) {
		t.Error("it counts as stopped")
	}
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	reaches("T")
	if !Stopped(pid) {
		t.Error("it doesn't count as stopped")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	reaches("Z")
	_ = cmd.Wait()
	reaches("")
}
