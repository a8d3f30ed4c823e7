package beads

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// seen returns a client of a directory with one lock, and what the client has seen of it.
func seen(t *testing.T) (*Backend, *content) {
	t.Helper()
	b, err := New(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := b.read()
	if c == nil || err != nil {
		t.Fatal(c, err)
	}
	return b, c
}

// files returns the names in the directory of a client.
func files(t *testing.T, b *Backend) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(b.dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestRemoveTakesWhatWasSeen: remove removes the lock that was seen.
func TestRemoveTakesWhatWasSeen(t *testing.T) {
	b, c := seen(t)
	if removed, err := b.remove(c); !removed || err != nil || len(files(t, b)) > 0 {
		t.Errorf("%v, %v, left %v", removed, err, files(t, b))
	}
	if removed, err := b.remove(c); removed || err != nil {
		t.Errorf("of nothing: %v, %v", removed, err)
	}
}

// TestRemovePutsBack: remove puts a lock back that has taken the place of the one that was seen,
// whether it is another file or the same file with another content.
func TestRemovePutsBack(t *testing.T) {
	for name, body := range map[string]string{"overwritten": "odd", "replaced": "old"} {
		b, c := seen(t)
		if name == "replaced" {
			if err := os.Rename(b.path, filepath.Join(b.dir, "kept")); err != nil { // with its inode number
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(b.path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		was, _ := os.Lstat(b.path)
		before := len(files(t, b))
		removed, err := b.remove(c)
		is, lost := os.Lstat(b.path)
		if removed || err != nil || lost != nil || !os.SameFile(was, is) || len(files(t, b)) != before {
			t.Errorf("%s: removed %v, %v, %v, left %v", name, removed, err, lost, files(t, b))
		}
	}
}

// TestPutBackKeepsBoth: if a third lock has taken the place, both files stay, and the error names
// them.
func TestPutBackKeepsBoth(t *testing.T) {
	b, _ := seen(t)
	aside := b.temp()
	if err := os.WriteFile(aside, []byte("aside"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := putBack(aside, b.path)
	if !errors.Is(err, os.ErrExist) || len(files(t, b)) != 2 {
		t.Errorf("%v, left %v", err, files(t, b))
	}
	if body, _ := os.ReadFile(b.path); string(body) != "old" {
		t.Errorf("the lock is %q now", body)
	}
}

// TestWithoutFlock: where the directory has no flock, a stale lock stays held, and a free one is
// acquired and released.
func TestWithoutFlock(t *testing.T) {
	noFlock(t)
	b, _ := seen(t)
	stale := `{"holder": "x", "pid": 2147483647, "hostname": "` + b.host + `", "started_at": "2025-10-25T12:00:00Z"}`
	if err := os.WriteFile(b.path, []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := b.TryLock(t.Context(), Key, 1); ok || err != nil {
		t.Errorf("a stale lock was acquired: %v, %v", ok, err)
	}
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	h, ok, err := b.TryLock(t.Context(), Key, 1)
	if !ok || err != nil {
		t.Fatalf("a free lock: %v, %v", ok, err)
	}
	if err := b.Release(t.Context(), h); err != nil || len(files(t, b)) > 0 {
		t.Errorf("release: %v, left %v", err, files(t, b))
	}
}
