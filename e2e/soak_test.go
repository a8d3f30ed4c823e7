//go:build unix && !minio && !programs

package e2e

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSoak: make soak runs until it is interrupted, and prints its totals.
func TestSoak(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("make", "-C", "..", "soak")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // other tests are under way
	out := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	within := time.After(hang)
	for !strings.Contains(out.String(), "histories") {
		select {
		case err := <-done:
			t.Fatalf("it ended: %v\n%s", err, out)
		case <-within:
			t.Fatalf("it printed no totals:\n%s", out)
		case <-time.After(100 * time.Millisecond):
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-within:
		t.Fatalf("it doesn't end:\n%s", out)
	}
	if strings.Contains(out.String(), "--- FAIL") {
		t.Error(out)
	}
}
