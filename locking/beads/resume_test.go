//go:build unix

package beads

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/repolock/repolock/locking"
)

// TestResumeRefuses: a lock that another holder can have had isn't resumed, although the file is
// the same now. It stays lost, and Release removes the file that is ours.
func TestResumeRefuses(t *testing.T) {
	for name, harm := range map[string]func(path, body string) error{
		"moved away and back": func(path, _ string) error {
			return errors.Join(os.Rename(path, path+".x"), os.Rename(path+".x", path))
		},
		"overwritten and back": func(path, body string) error {
			return errors.Join(os.WriteFile(path, []byte("x"), 0o644), os.WriteFile(path, []byte(body), 0o644))
		},
		"its mode changed": func(path, _ string) error { return os.Chmod(path, 0o600) },
		"back with its time": func(path, body string) error {
			was, err := os.Stat(path)
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile(path, []byte("x"), 0o644), os.WriteFile(path, []byte(body), 0o644),
				os.Chtimes(path, was.ModTime(), was.ModTime()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := client(t, dir, Options{})
			h := acquire(t, b)
			path := filepath.Join(dir, Key)
			tick(t, path)
			if err := harm(path, lockText(t, dir)); err != nil {
				t.Fatal(err)
			}
			isLost(t, "resume", b.Resume(t.Context(), h))
			lostForGood(t, b, h)
			left(t, dir)
		})
	}
}

// TestLostStaysLost: a lock that Renew has found lost isn't resumed, even if its file is back.
func TestLostStaysLost(t *testing.T) {
	dir := t.TempDir()
	b := client(t, dir, Options{})
	h := acquire(t, b)
	path := filepath.Join(dir, Key)
	for _, names := range [][2]string{{path, path + ".x"}, {path + ".x", path}} {
		if err := os.Rename(names[0], names[1]); err != nil {
			t.Fatal(err)
		}
		isLost(t, "renew", b.Renew(t.Context(), h))
	}
	isLost(t, "resume", b.Resume(t.Context(), h))
	lostForGood(t, b, h)
	left(t, dir)
}

// lostForGood checks that a lost lock isn't renewed, and that its release says so.
func lostForGood(t *testing.T, b *Backend, h locking.Handle) {
	t.Helper()
	for range 2 {
		isLost(t, "renew", b.Renew(t.Context(), h))
		isLost(t, "release", b.Release(t.Context(), h))
	}
}

// TestNamedProcessEnds: TryLock refuses to name a process that has ended, and gives the lock back if that
// ends while it settles. If it ends later, the lock is lost, and Release removes it.
func TestNamedProcessEnds(t *testing.T) {
	dir := t.TempDir()
	pid, end := running(t)
	for _, opts := range []Options{
		{PID: ended(t), Clock: &leap{until: func() { t.Error("a lock was created") }}},
		{PID: pid, Clock: &leap{until: end}},
	} {
		if _, ok, err := client(t, dir, opts).TryLock(t.Context(), Key, ttl); ok || err == nil {
			t.Errorf("acquired %v, %v", ok, err)
		}
		left(t, dir)
	}
	pid, end = running(t)
	b := client(t, dir, Options{PID: pid})
	h := acquire(t, b)
	renew(t, b, h)
	end()
	isLost(t, "resume", b.Resume(t.Context(), h))
	lostForGood(t, b, h)
	left(t, dir)
}
