//go:build unix

package beads_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/beads"
)

// TestResume: an untouched lock is resumed, however late, and again, and after reads.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	b := client(t, dir, beads.Options{})
	h := acquire(t, b)
	for range 3 {
		if _, ok, err := client(t, dir, beads.Options{}).TryLock(t.Context(), beads.Key, ttl); ok || err != nil {
			t.Errorf("another: acquired %v, %v", ok, err)
		}
		if err := b.Resume(t.Context(), h); err != nil {
			t.Errorf("resume: %v", err)
		}
		if err := b.Renew(t.Context(), h); err != nil {
			t.Errorf("renew: %v", err)
		}
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
	if err := b.Resume(t.Context(), h); !errors.Is(err, locking.ErrLost) {
		t.Errorf("resume after release: %v", err)
	}
	if err := b.Resume(t.Context(), locking.Handle{}); !errors.Is(err, locking.ErrLost) {
		t.Errorf("resume of no lock: %v", err)
	}
}

// TestResumeRefuses: a lock that another holder can have had isn't resumed, although the file is
// the same now. It stays lost, and Release removes the file that is ours.
func TestResumeRefuses(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path, body string) error{
		"moved away and back": func(_ *testing.T, path, _ string) error {
			return errors.Join(os.Rename(path, path+".x"), os.Rename(path+".x", path))
		},
		"overwritten and back": func(_ *testing.T, path, body string) error {
			return errors.Join(os.WriteFile(path, []byte("x"), 0o644), os.WriteFile(path, []byte(body), 0o644))
		},
		"its mode changed": func(_ *testing.T, path, _ string) error { return os.Chmod(path, 0o600) },
		"back with its time": func(t *testing.T, path, body string) error {
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
			b := client(t, dir, beads.Options{})
			h := acquire(t, b)
			path := filepath.Join(dir, beads.Key)
			tick(t, path)
			if err := harm(t, path, content(t, dir)); err != nil {
				t.Fatal(err)
			}
			if err := b.Resume(t.Context(), h); !errors.Is(err, locking.ErrLost) {
				t.Errorf("resume: %v", err)
			}
			lostForGood(t, b, h)
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestLostStaysLost: a lock that Renew has found lost isn't resumed, even if its file is back.
func TestLostStaysLost(t *testing.T) {
	dir := t.TempDir()
	b := client(t, dir, beads.Options{})
	h := acquire(t, b)
	path := filepath.Join(dir, beads.Key)
	if err := os.Rename(path, path+".x"); err != nil {
		t.Fatal(err)
	}
	if err := b.Renew(t.Context(), h); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: %v", err)
	}
	if err := os.Rename(path+".x", path); err != nil {
		t.Fatal(err)
	}
	if err := b.Resume(t.Context(), h); !errors.Is(err, locking.ErrLost) {
		t.Errorf("resume: %v", err)
	}
	lostForGood(t, b, h)
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// lostForGood checks that a lost lock isn't renewed, and that its release says so.
func lostForGood(t *testing.T, b *beads.Backend, h locking.Handle) {
	t.Helper()
	for range 2 {
		if err := b.Renew(t.Context(), h); !errors.Is(err, locking.ErrLost) {
			t.Errorf("renew of a lost lock: %v", err)
		}
		if err := b.Release(t.Context(), h); !errors.Is(err, locking.ErrLost) {
			t.Errorf("release of a lost lock: %v", err)
		}
	}
}

// tick waits until the clock of the file system has moved on since a file was changed.
func tick(t *testing.T, path string) {
	t.Helper()
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	probe := filepath.Join(t.TempDir(), "probe")
	for now := was; !now.ModTime().After(was.ModTime()); {
		<-time.After(time.Millisecond)
		if err := os.WriteFile(probe, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if now, err = os.Stat(probe); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNamedProcessEnds: TryLock refuses to name a process that has ended. If it ends later, the
// lock is lost, and Release removes it.
func TestNamedProcessEnds(t *testing.T) {
	dir := t.TempDir()
	created := &beads.Leap{Until: func() { t.Error("a lock was created") }}
	b := client(t, dir, beads.Options{PID: ended(t), Clock: created})
	if _, ok, err := b.TryLock(t.Context(), beads.Key, ttl); ok || err == nil {
		t.Errorf("acquired %v, %v", ok, err)
	}
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { stdin.Close(); _ = cmd.Wait() }
	b = client(t, dir, beads.Options{PID: cmd.Process.Pid})
	h := acquire(t, b)
	if err := b.Renew(t.Context(), h); err != nil {
		t.Errorf("renew: %v", err)
	}
	end()
	if err := b.Resume(t.Context(), h); !errors.Is(err, locking.ErrLost) {
		t.Errorf("resume: %v", err)
	}
	lostForGood(t, b, h)
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestNamedProcessEndsMeanwhile: TryLock gives the lock back if the process ends while it settles.
func TestNamedProcessEndsMeanwhile(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { stdin.Close(); _ = cmd.Wait() }
	b := client(t, dir, beads.Options{PID: cmd.Process.Pid, Clock: &beads.Leap{Until: end}})
	if _, ok, err := b.TryLock(t.Context(), beads.Key, ttl); ok || err == nil {
		t.Errorf("acquired %v, %v", ok, err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
