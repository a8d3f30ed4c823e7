package beads

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/locking"
)

const nobody, root = 65534, 0

// asNobody runs f in a thread that belongs to the user nobody: for kill(2), and if files is set, for files
// too. If this process isn't root's, f runs as this user.
func asNobody(t *testing.T, files bool, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and the thread ends with this goroutine
		if os.Getuid() == root {
			// The system call is of this thread alone.
			if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, root); no != 0 {
				t.Errorf("setresuid: %v", no)
				return
			}
			if !files {
				_, _ = unix.SetfsuidRetUid(root)
			}
		}
		f()
	}()
	<-done
}

// TestEPERMIsAlive: a process of another user, for which kill(pid, 0) returns EPERM, is alive, as
// it is to the daemon.
func TestEPERMIsAlive(t *testing.T) {
	dir := reachable(t)
	put(t, dir, func(m map[string]any) { m["pid"] = 1 })
	b := client(t, dir, Options{})
	ours := false
	asNobody(t, false, func() { ours = unix.Kill(1, 0) == nil })
	if ours {
		t.Skip("process 1 is this user's, as it can be in a container")
	}
	asNobody(t, false, func() {
		assert.Is(t, unix.Kill(1, 0), unix.EPERM, "kill(1, 0)")
		info := lockcheck.Seen(t, b, Key)
		assert.That(t, !info.Stale && info.Unreadable == "", "%+v", info)
		lockcheck.Held(t, b, Key)
		skips(t, dir, "vc-executor")
	})
}

// reachable returns a directory that the user nobody can reach: TMPDIR can be below one that only root can
// enter.
func reachable(t *testing.T) string {
	t.Helper()
	top, err := os.MkdirTemp("/tmp", "beads")
	assert.OK(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	dir := filepath.Join(top, "dir")
	assert.OK(t, os.Mkdir(dir, 0o755))
	return dir
}

// open lets other users into a directory of a test, or only read it.
func open(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	for path, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: mode} {
		assert.OK(t, os.Chmod(path, mode))
	}
}

// refusal checks an error of a user that has no permission.
func refusal(t *testing.T, what, path string, err error) {
	t.Helper()
	if !errors.Is(err, locking.ErrPermission) || !strings.Contains(err.Error(), path) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v, want ErrPermission", what, err)
	}
}

// TestPermission: a user that can't write in the directory holds nothing, and gets an error that says so. A
// holder that can't write there any more still has the lock.
func TestPermission(t *testing.T) {
	dir := reachable(t)
	b := client(t, dir, Options{})
	path := filepath.Join(dir, Key)
	open(t, dir, 0o555)
	asNobody(t, true, func() {
		_, ok, err := b.TryLock(t.Context(), Key, ttl)
		refusal(t, "a free lock", path, err)
		if ok || err != nil && !strings.Contains(err.Error(), "nothing is held") {
			t.Errorf("acquired %v, %v", ok, err)
		}
	})
	open(t, dir, 0o755)
	left(t, dir)
	h := lockcheck.Acquire(t, b, Key, ttl)
	seen := lockcheck.Seen(t, b, Key)
	open(t, dir, 0o555)
	asNobody(t, true, func() {
		refusal(t, "release", path, b.Release(t.Context(), h))
		ok, err := b.Break(t.Context(), seen, false)
		refusal(t, "break", path, err)
		assert.That(t, !ok, "broken")
		lockcheck.Renew(t, b, h)
	})
	open(t, dir, 0o755)
	lockcheck.Release(t, b, h)
}

// TestUnreadableIsHeld: a lock that this user can't read is held, and isn't broken by this user.
func TestUnreadableIsHeld(t *testing.T) {
	dir := reachable(t)
	body := put(t, dir, func(m map[string]any) { m["pid"] = ended(t) })
	path := filepath.Join(dir, Key)
	assert.OK(t, os.Chmod(path, 0))
	b := client(t, dir, Options{})
	open(t, dir, 0o777)
	asNobody(t, true, func() {
		lockcheck.Held(t, b, Key)
		seen, err := b.Inspect(t.Context(), Key)
		if err != nil || seen == nil || seen.Stale || !strings.Contains(seen.Unreadable, "can't read it") {
			t.Errorf("%+v, %v", seen, err)
			return
		}
		ok, err := b.Break(t.Context(), seen, false)
		refusal(t, "break", path, err)
		assert.That(t, !ok, "broken")
	})
	assert.OK(t, os.Chmod(path, 0o600))
	assert.That(t, lockText(t, dir) == body, "it was changed")
}

// TestOpenRefused: Open is refused by a directory that this user can't reach.
func TestOpenRefused(t *testing.T) {
	dir := filepath.Join(reachable(t), ".beads")
	assert.OK(t, os.Mkdir(dir, 0o700))
	open(t, dir, 0o700)
	parent := filepath.Dir(dir)
	assert.OK(t, os.Chmod(parent, 0))
	t.Cleanup(func() { _ = os.Chmod(parent, 0o700) })
	asNobody(t, true, func() {
		_, err := Open(dir, Options{})
		refusal(t, "open", dir, err)
	})
}

// TestZombieIsAlive: a process that has ended and that its parent hasn't waited for exists, so
// that its lock is held, as it is to the daemon.
func TestZombieIsAlive(t *testing.T) {
	cmd := exec.Command("true")
	assert.OK(t, cmd.Start())
	pid := cmd.Process.Pid
	err := unix.EINTR
	for err == unix.EINTR {
		err, _ = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil).(unix.Errno)
	}
	assert.Need(t, err == 0, "%v", err)
	dir := t.TempDir()
	put(t, dir, func(m map[string]any) { m["pid"] = pid })
	b := client(t, dir, Options{})
	lockcheck.Held(t, b, Key)
	assert.OK(t, cmd.Wait())
	lockcheck.Acquire(t, b, Key, ttl)
}
