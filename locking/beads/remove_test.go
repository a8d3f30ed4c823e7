//go:build unix

package beads

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/locking"
)

// TestRemoveNeedsTheSameFile: a removal removes only the file that was seen. Another one is back under its name, and a
// file that is gone isn't an error.
func TestRemoveNeedsTheSameFile(t *testing.T) {
	dir := t.TempDir()
	b, err := Open(dir, Options{})
	assert.OK(t, err)
	write := func(text string) *lockfile.File {
		t.Helper()
		_ = os.Remove(b.path)
		assert.OK(t, os.WriteFile(b.path, []byte(text), 0o600))
		f, err := lockfile.Read(b.path, maxSize)
		assert.OK(t, err)
		return f
	}
	left := func(want string) {
		t.Helper()
		body, err := os.ReadFile(b.path)
		assert.That(t, (err == nil) == (want != "") && string(body) == want, "left: %q, %v", body, err)
		all, err := os.ReadDir(dir)
		assert.That(t, err == nil && len(all) == min(len(want), 1), "left: %v, %v", all, err)
	}
	f := write("a")
	done, err := b.remove(f)
	assert.That(t, done && err == nil, "%v, %v", done, err)
	left("")
	done, err = b.remove(f)
	assert.That(t, !done && err == nil, "a file that is gone: %v, %v", done, err)
	f = write("a")
	keep, err := os.Open(b.path) // so that no other file gets its inode number
	assert.OK(t, err)
	defer keep.Close()
	write("a")
	done, err = b.remove(f)
	assert.That(t, !done && err == nil, "another file: %v, %v", done, err)
	left("a")
	f = write("a")
	assert.OK(t, os.WriteFile(b.path, []byte("b"), 0o600))
	done, err = b.remove(f)
	assert.That(t, !done && err == nil, "another content: %v, %v", done, err)
	left("b")
}

// TestUnlinkOfAnother: the lock file of another holder isn't removed, and the lock is lost.
func TestUnlinkOfAnother(t *testing.T) {
	b, err := Open(t.TempDir(), Options{})
	assert.OK(t, err)
	mine, err := b.link()
	assert.Need(t, err == nil && mine != nil, "%v", err)
	defer mine.Open.Close()
	path := b.path
	b.path += ".none" // as if the file were removed after unlink has looked at it
	assert.Is(t, b.unlink(mine), locking.ErrLost)
	b.path = path
	assert.OK(t, errors.Join(os.Remove(b.path), os.WriteFile(b.path, []byte("{}"), 0o600)))
	assert.Is(t, b.unlink(mine), locking.ErrLost)
	body, err := os.ReadFile(b.path)
	assert.That(t, err == nil && string(body) == "{}", "%q, %v", body, err)
}

// TestPutBackLeavesAnother: a file isn't put back in the place of another lock, and the error names both.
func TestPutBackLeavesAnother(t *testing.T) {
	dir := t.TempDir()
	aside, path := filepath.Join(dir, "aside"), filepath.Join(dir, "lock")
	assert.OK(t, errors.Join(os.WriteFile(aside, []byte("a"), 0o600), os.WriteFile(path, []byte("b"), 0o600)))
	err := putBack(aside, path)
	assert.Says(t, err, os.ErrExist, aside)
	assert.OK(t, os.Remove(path))
	assert.OK(t, putBack(aside, path))
	_, err = os.Lstat(aside)
	assert.Is(t, err, os.ErrNotExist)
}

// TestOpenRefuses: a directory that can't have a database is refused.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	assert.OK(t, os.WriteFile(file, nil, 0o600))
	for path, says := range map[string]string{filepath.Join(dir, "none"): "doesn't exist", file: "isn't a directory", filepath.Join(file, "x"): "doesn't exist"} {
		_, err := Open(path, Options{})
		assert.Says(t, err, locking.ErrUnfit, says)
	}
}

// TestOpenNeedsAHostname: without a hostname a lock can't be judged, and each lock without one would be ours.
func TestOpenNeedsAHostname(t *testing.T) {
	real := hostname
	t.Cleanup(func() { hostname = real })
	for _, failure := range []error{nil, errors.New("no name")} {
		hostname = func() (string, error) { return "", failure }
		_, err := Open(t.TempDir(), Options{})
		assert.Says(t, err, locking.ErrUnfit, "hostname is unknown")
	}
}

// TestPutBackWithoutLinks: on a file system without hard links a file gets its name back by a rename, unless another
// lock has the name.
func TestPutBackWithoutLinks(t *testing.T) {
	real := link
	t.Cleanup(func() { link = real })
	link = func(string, string) error { return syscall.EPERM }
	dir := t.TempDir()
	aside, path := filepath.Join(dir, "aside"), filepath.Join(dir, "lock")
	assert.OK(t, errors.Join(os.WriteFile(aside, []byte("a"), 0o600), os.WriteFile(path, []byte("b"), 0o600)))
	assert.Says(t, putBack(aside, path), syscall.EPERM, aside)
	body, err := os.ReadFile(path)
	assert.That(t, err == nil && string(body) == "b", "%q, %v", body, err)
	assert.OK(t, os.Remove(path))
	assert.OK(t, putBack(aside, path))
	body, err = os.ReadFile(path)
	assert.That(t, err == nil && string(body) == "a", "%q, %v", body, err)
}

// TestReadFails: a lock file that can't be opened for another reason than its permissions is an error, and not a
// malformed lock, which a person would be advised to break.
func TestReadFails(t *testing.T) {
	b, _ := replaced(t)
	var was syscall.Rlimit
	assert.OK(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	none := was
	none.Cur = 0
	assert.OK(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	c, err := b.read()
	assert.OK(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	assert.Is(t, err, syscall.EMFILE)
	assert.That(t, c == nil, "%+v", c)
}

// TestLockThatStays: TryLock says so if it can neither return its lock nor remove it.
func TestLockThatStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".beads")
	assert.OK(t, os.Mkdir(dir, 0o700))
	clock := &leap{until: func() { // another program puts a file in the directory's place
		assert.OK(t, errors.Join(os.Rename(dir, dir+".aside"), os.WriteFile(dir, nil, 0o600)))
	}}
	_, ok, err := client(t, dir, Options{Clock: clock}).TryLock(t.Context(), Key, ttl)
	assert.That(t, !ok, "acquired")
	assert.Says(t, err, syscall.ENOTDIR, "its file can't be removed, so the lock stays held until process")
	left(t, dir+".aside", Key)
}
