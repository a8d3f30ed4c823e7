//go:build unix

package towerfleet

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/locking"
)

// isUnfit requires an error of one line that names a directory which can't keep locks.
func isUnfit(t *testing.T, dir string, err error, says string) {
	t.Helper()
	assert.Says(t, err, locking.ErrUnfit, says)
	assert.Says(t, err, locking.ErrUnfit, dir)
}

// TestDirectory: a missing directory is created with mode 0700. A directory with another mode, a file, and the
// directory of another user, who can't read this one's locks, is refused in one line and left as it is.
func TestDirectory(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "locks")
	assert.OK(t, assert.Err(Open(dir, Options{})))
	if info, err := os.Stat(dir); err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	for _, mode := range []os.FileMode{0o755, 0o770, 0o701, 0o777, 0o500, 0o600} {
		assert.OK(t, os.Chmod(dir, mode))
		_, err := Open(dir, Options{})
		isUnfit(t, dir, err, "chmod 700")
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%o: changed: %v", mode, info.Mode())
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	assert.OK(t, os.WriteFile(file, nil, 0o700))
	for _, path := range []string{file, filepath.Join(file, "x"), filepath.Join(file, "x", "y")} {
		_, err := Open(path, Options{})
		isUnfit(t, path, err, "")
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 300))
	assert.Says(t, assert.Err(Open(filepath.Join(file, "x"), Options{Observe: true})), syscall.ENOTDIR, "can't be read")
	assert.Says(t, assert.Err(Open(long, Options{Observe: true})), syscall.ENAMETOOLONG, "can't be read")
	created := func(dir string) { t.Errorf("%s was created", dir) }
	assert.Says(t, assert.Err(Open(long, Options{Created: created})), syscall.ENAMETOOLONG, "can't be created")
	assert.OK(t, os.Chmod(dir, 0o700))
	hook(t, &executor, func() int { return os.Geteuid() + 1 })
	for _, observe := range []bool{true, false} {
		_, err := Open(dir, Options{Observe: observe})
		isUnfit(t, dir, err, "belongs to")
	}
}

// TestDirectoryWithoutParent: only the last level is created. A directory below a share that isn't
// mounted, or a misspelt one, would exclude no other program.
func TestDirectoryWithoutParent(t *testing.T) {
	root := t.TempDir()
	assert.OK(t, os.Symlink(filepath.Join(root, "share", "locks"), filepath.Join(root, "link")))
	for _, name := range []string{"share/locks", "share/more/locks", "link", "link/locks"} {
		dir := filepath.Join(root, name)
		_, err := Open(dir, Options{})
		isUnfit(t, dir, err, "")
		assert.Is(t, assert.Err(Open(dir, Options{Observe: true})), nil, name)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 {
		t.Errorf("created: %v, %v", entries, err)
	}
}

// TestDirectoryInADirectoryOfLocks: a path that goes on below a lock is no place for locks, and Open
// says which directory it has created. Only a file with the name of a lock is a lock.
func TestDirectoryInADirectoryOfLocks(t *testing.T) {
	in(t, func(w *world) {
		var created []string
		opts := Options{Created: func(dir string) { created = append(created, dir) }}
		w.backend(opts)
		w.write("n", foreign("n", "req_1", time.Now(), 900))
		w.write("N.lock", foreign("N", "req_1", time.Now(), 900))
		assert.OK(t, assert.Err(Open(w.path("other"), opts)))
		w.write("n.lock", foreign("n", "req_1", time.Now(), 900))
		_, err := Open(w.path("app"), opts)
		isUnfit(t, w.path("app"), err, "a lock's name has no slash")
		assert.Equal(t, created, []string{w.dir, w.path("other")})
	})
}

// TestPermission: what the file system forbids is locking.ErrPermission, and no loss. A lock that wasn't
// released can be released again.
func TestPermission(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := lockcheck.Acquire(w, b, "n", 0)
		w.write("m.lock", foreign("m", "req_1", time.Now().Add(-time.Hour), 900))
		seen := lockcheck.Seen(w, b, "m")
		hook(t, &link, func(string, string) error { return syscall.EACCES })
		hook(t, &exchange, func(string, string) error { return syscall.EROFS })
		hook(t, &remove, func(string) error { return syscall.EACCES })
		_, ok, tried := b.TryLock(w.Context(), "x", 0)
		broken, breaking := b.Break(w.Context(), seen, true)
		assert.That(t, !ok && !broken, "%v, %v", ok, broken)
		for what, err := range map[string]error{"try": tried, "renew": b.Renew(w.Context(), h),
			"release": b.Release(w.Context(), h), "break": breaking} {
			if !errors.Is(err, locking.ErrPermission) || errors.Is(err, locking.ErrLost) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", what, err)
			}
		}
		remove = os.Remove
		if err := b.Release(w.Context(), h); err != nil || len(b.held) > 0 {
			t.Error(err)
		}
	})
}

// TestOptions: impossible options are refused, and write nothing. Each execution has its own request id.
func TestOptions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	for name, opts := range map[string]Options{
		"request":  {RequestID: "../x"},
		"lines":    {RequestID: "a\nb"},
		"metadata": {Metadata: map[string]any{"x": make(chan int)}},
		"handle":   {Metadata: map[string]any{HandleField: "x"}},
	} {
		if _, err := Open(dir, opts); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	assert.Is(t, assert.Err(os.Stat(dir)), os.ErrNotExist)
	ids := map[string]bool{}
	for range 3 {
		b, err := Open(dir, Options{})
		assert.OK(t, err)
		if id := b.opts.RequestID; ids[id] || !strings.HasPrefix(id, "req_") || !requestFormat.MatchString(id) {
			t.Errorf("%s after %v", id, ids)
		}
		ids[b.opts.RequestID] = true
	}
}

// TestObserve: an observing backend reads locks, and creates, writes and breaks nothing.
func TestObserve(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Observe: true, Force: true})
		lockcheck.Free(w, b, "n")
		assert.Is(t, b.Cleanup(w.Context()), nil)
		assert.Is(t, assert.Err(os.Stat(w.dir)), os.ErrNotExist)
		w.backend(Options{})
		text := foreign("n", "req_1", time.Now().Add(-time.Hour), 900)
		w.write("n.lock", text)
		info, err := b.Inspect(w.Context(), "n")
		assert.Need(t, err == nil && info != nil, "%v", err)
		_, ok, err := b.TryLock(w.Context(), "m", 0)
		assert.That(t, !ok && errors.Is(err, ErrObserve), "%v %v", ok, err)
		if ok, err := b.Break(w.Context(), info, true); ok || !errors.Is(err, ErrObserve) {
			t.Errorf("%v %v", ok, err)
		}
		w.left(0, "n.lock")
		assert.That(t, w.read("n.lock") == text, "it was written")
	})
}

// TestInspect: Inspect describes the holder, and a free lock has none.
func TestInspect(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		lockcheck.Free(w, b, "n")
		at := time.Now().UTC()
		w.write("n.lock", strings.Replace(foreign("n", "req_1", at, 900), "tower-01", `tower\u001b[2J`, 1))
		want := locking.Info{Key: "n", Holder: "req_1 (intent deploy-app, by claude-code)", Host: `tower\x1b[2J`,
			PID: 12345, Request: "req_1", Actor: "claude-code", Intent: "deploy-app", Acquired: at, Renewed: at, TTL: DefaultTTL,
			Revision: sum(w.read("n.lock"))}
		assert.Equal(t, *lockcheck.Seen(w, b, "n"), want)
	})
}

// TestCleanup: Cleanup removes the temporary files of killed repolocks, and nothing else. They
// block no lock, and the script's glob doesn't match them.
func TestCleanup(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		assert.OK(t, os.WriteFile(b.temp("n"), []byte("{}"), 0o600))
		if locks, _ := filepath.Glob(w.path("[^.]*")); len(locks) > 0 {
			t.Errorf("%q", locks)
		}
		h := lockcheck.Acquire(w, b, "n", 0)
		w.write("m.lock", foreign("m", "req_1", time.Now().Add(-time.Hour), 1))
		w.write("x.lock.req_1.tmp", "")
		assert.Is(t, b.Cleanup(w.Context()), nil)
		w.left(1, "m.lock", "n.lock", "x.lock.req_1.tmp")
		lockcheck.Release(w, b, h)
	})
}

// TestCleanupFails: Cleanup reports a temporary file that it can't remove.
func TestCleanupFails(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		name := b.temp("n")
		assert.OK(t, os.MkdirAll(filepath.Join(name, "x"), 0o700))
		err := b.Cleanup(w.Context())
		assert.That(t, err != nil && strings.Contains(err.Error(), "wasn't removed"), "%v", err)
		assert.OK(t, os.RemoveAll(name))
	})
}

// TestNoFlock: on a file system without flock, no lock is acquired, renewed or released, also if it lost flock later.
func TestNoFlock(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := lockcheck.Acquire(w, b, "n", 0)
		text := w.read("n.lock")
		hook(t, &tryFlock, func(*os.File) (bool, error) { return false, errors.ErrUnsupported })
		_, opening := Open(w.dir, Options{})
		for _, err := range []error{opening, lockcheck.Fails(w.Context(), w, b, "m"), b.Renew(w.Context(), h), b.Release(w.Context(), h)} {
			isUnfit(t, w.dir, err, "can't be locked by flock")
		}
		assert.Equal(t, w.read("n.lock"), text)
		assert.Equal(t, w.files(), []string{"n.lock"})
	})
}

// TestFlock: while another process has the flock of the directory, an acquirer writes nothing.
func TestFlock(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		unlock, err := w.backend(Options{}).exclusive(w.Context())
		assert.OK(t, err)
		defer unlock()
		_ = lockcheck.Fails(w.Context(), w, b, "n")
		w.left(0)
	})
}
