//go:build unix

package beads

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/locking"
)

// worktree returns the .beads directories of a main repository and of a worktree, which redirects with this text.
func worktree(t *testing.T, redirect string) (main, tree string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	assert.OK(t, err)
	main, tree = filepath.Join(top, "main/.beads"), filepath.Join(top, "tree/.beads")
	for _, dir := range []string{main, tree} {
		assert.OK(t, os.MkdirAll(dir, 0o700))
	}
	assert.OK(t, os.WriteFile(filepath.Join(tree, redirectName), []byte(strings.ReplaceAll(redirect, "TOP", top)), 0o600))
	return main, tree
}

// TestRedirect: the lock is in the directory that bd uses.
func TestRedirect(t *testing.T) {
	for text, follows := range map[string]bool{
		"../main/.beads":        true, // relative to the parent of .beads
		"../main/.beads\n":      true,
		"  ../main/.beads \r\n": true,
		"\n# the main repository\n\n../main/.beads\n../other": true,
		"TOP/main/.beads":           true,
		"../tree/../main/./.beads/": true,
		"../../main/.beads":         false, // no such directory
		"":                          false,
		"# ../main/.beads":          false,
		"../nowhere":                false,
		"redirect":                  false,
		".beads/redirect":           false, // a file
		".beads":                    false, // the directory itself
	} {
		main, tree := worktree(t, text)
		want := tree
		if follows {
			want = main
		}
		b := client(t, tree, Options{})
		h, ok, err := b.TryLock(t.Context(), Key, ttl)
		assert.Need(t, ok && err == nil, "%q: %v, %v", text, ok, err)
		if _, err := os.Lstat(filepath.Join(want, Key)); err != nil {
			t.Errorf("%q: the lock isn't in %s", text, want)
		}
		lockcheck.Held(t, client(t, want, Options{}), Key)
		assert.OK(t, b.Renew(t.Context(), h))
		assert.OK(t, b.Release(t.Context(), h))
	}
}

// TestRedirectOnce: a redirect in the directory that a redirect names has no effect, as in bd.
func TestRedirectOnce(t *testing.T) {
	main, tree := worktree(t, "../main/.beads")
	assert.OK(t, os.WriteFile(filepath.Join(main, redirectName), []byte("../tree/.beads"), 0o600))
	dir, err := Database(tree)
	assert.OK(t, err)
	assert.Equal(t, dir, main, "database")
}

// TestRedirectKind: bd ignores a directory in the redirect's place. A pipe, which makes bd wait, and a redirect
// that is too long to read are errors.
func TestRedirectKind(t *testing.T) {
	for name, c := range map[string]struct {
		create func(path string) error
		fails  bool
	}{
		"directory": {func(path string) error { return os.Mkdir(path, 0o700) }, false},
		"link":      {func(path string) error { return os.Symlink("nowhere", path) }, false},
		"pipe":      {func(path string) error { return syscall.Mkfifo(path, 0o600) }, true},
		"loop":      {func(path string) error { return os.Symlink(redirectName, path) }, true},
		"long": {func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("\n", maxSize)+"../main/.beads"), 0o600)
		}, true},
	} {
		_, tree := worktree(t, "")
		path := filepath.Join(tree, redirectName)
		assert.OK(t, os.Remove(path))
		assert.OK(t, c.create(path))
		b, err := Open(tree, Options{})
		if c.fails != (err != nil) || err == nil && b.dir != tree {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
}

// TestRedirectChanges: a lock is lost if bd works on another directory from now on, and a waiter for the lock doesn't
// acquire it.
func TestRedirectChanges(t *testing.T) {
	main, tree := worktree(t, "../main/.beads")
	b, waiter := client(t, tree, Options{}), client(t, tree, Options{})
	h, ok, err := b.TryLock(t.Context(), Key, ttl)
	assert.Need(t, ok && err == nil, "%v, %v", ok, err)
	assert.OK(t, os.Remove(filepath.Join(tree, redirectName)))
	assert.Says(t, b.Renew(t.Context(), h), locking.ErrLost, tree)
	assert.Is(t, b.Release(t.Context(), h), locking.ErrLost)
	left(t, main)
	_, ok, err = waiter.TryLock(t.Context(), Key, ttl)
	assert.That(t, !ok, "the waiter has the lock")
	assert.Says(t, err, locking.ErrUnfit, tree)
	left(t, main)
	left(t, tree)
}

// TestRedirectUnreadable: while a redirect can't be read, a lock isn't known to be held, nor to be lost.
func TestRedirectUnreadable(t *testing.T) {
	dir := t.TempDir()
	b := client(t, dir, Options{})
	h, ok, err := b.TryLock(t.Context(), Key, ttl)
	assert.Need(t, ok && err == nil, "%v, %v", ok, err)
	redirect := filepath.Join(dir, redirectName)
	assert.OK(t, syscall.Mkfifo(redirect, 0o600))
	err = b.Renew(t.Context(), h)
	assert.That(t, err != nil && !errors.Is(err, locking.ErrLost), "%v", err)
	assert.OK(t, os.Remove(redirect))
	assert.OK(t, b.Renew(t.Context(), h))
	assert.OK(t, b.Release(t.Context(), h))
}
