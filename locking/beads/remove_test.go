package beads

import (
	"errors"
	"os"
	"path/filepath"
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
