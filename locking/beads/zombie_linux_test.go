package beads_test

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/locking/beads"
)

// TestZombieIsAlive: a process that has ended and that its parent hasn't waited for exists, so
// that its lock is held, as it is to the daemon.
func TestZombieIsAlive(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	err := unix.EINTR
	for err == unix.EINTR {
		err, _ = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil).(unix.Errno)
	}
	if err != 0 {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put(t, dir, func(m map[string]any) { m["pid"] = pid })
	b := client(t, dir, beads.Options{})
	if _, ok, err := b.TryLock(t.Context(), beads.Key, ttl); ok || err != nil {
		t.Errorf("of a zombie: acquired %v, %v", ok, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	acquire(t, b)
}
