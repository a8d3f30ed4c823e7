package beads_test

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/locking/beads"
)

// TestEPERMIsAlive: a process of another user, for which kill(pid, 0) returns EPERM, is alive.
func TestEPERMIsAlive(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, func(m map[string]any) { m["pid"] = 1 })
	b := client(t, dir, beads.Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with this goroutine
		if os.Getuid() == 0 {
			const other, root = 65534, 0
			// The system call is of this thread alone, which keeps root's access to files.
			if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, other, other, root); no != 0 {
				t.Errorf("setresuid: %v", no)
				return
			}
			_, _ = unix.SetfsuidRetUid(root)
		}
		if err := unix.Kill(1, 0); err != unix.EPERM {
			t.Errorf("kill(1, 0): %v", err)
		}
		if info, err := b.Inspect(t.Context(), beads.Key); err != nil || info == nil || info.Stale || info.Trouble != "" {
			t.Errorf("%+v, %v", info, err)
		}
	}()
	<-done
	if _, ok, err := b.TryLock(t.Context(), beads.Key, ttl); ok || err != nil {
		t.Errorf("acquired %v, %v", ok, err)
	}
}
