//go:build unix

package beads_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/repolock/repolock/locking/beads"
)

// TestBreakComparesTheRevision: Break removes nothing but the file that was seen, and a lock that
// was malformed then only if it is the same.
func TestBreakComparesTheRevision(t *testing.T) {
	const malformed = `{"holder": "vc-`
	for name, change := range map[string]func(t *testing.T, path string) error{
		"rewritten later": func(t *testing.T, path string) error {
			tick(t, path)
			return os.WriteFile(path, []byte(malformed), 0o644)
		},
		"other bytes, same time": func(t *testing.T, path string) error {
			was, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(`{"holder": "xx-`), 0o644); err != nil {
				return err
			}
			return os.Chtimes(path, was.ModTime(), was.ModTime())
		},
		"other file, same bytes and time": func(t *testing.T, path string) error {
			was, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path+".x", []byte(malformed), 0o644); err != nil {
				return err
			}
			if err := os.Chtimes(path+".x", was.ModTime(), was.ModTime()); err != nil {
				return err
			}
			return os.Rename(path+".x", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, malformed)
			b := client(t, dir, beads.Options{})
			seen, err := b.Inspect(t.Context(), beads.Key)
			if err != nil || seen == nil {
				t.Fatal(seen, err)
			}
			path := filepath.Join(dir, beads.Key)
			if err := change(t, path); err != nil {
				t.Fatal(err)
			}
			if ok, err := b.Break(t.Context(), seen, false); ok || err != nil {
				t.Errorf("broken %v, %v", ok, err)
			}
			if seen, err = b.Inspect(t.Context(), beads.Key); err != nil || seen == nil {
				t.Fatal(seen, err)
			}
			without := *seen
			without.Revision = ""
			if ok, err := b.Break(t.Context(), &without, false); ok || err != nil {
				t.Errorf("broken without a revision: %v, %v", ok, err)
			}
			if ok, err := b.Break(t.Context(), seen, false); !ok || err != nil {
				t.Errorf("not broken: %v, %v", ok, err)
			}
			if ok, err := b.Break(t.Context(), seen, false); ok || err != nil {
				t.Errorf("broken again: %v, %v", ok, err)
			}
		})
	}
}

// TestBreakStale: Break of a stale lock removes a stale lock alone, and a lock of another host
// only without it.
func TestBreakStale(t *testing.T) {
	dead := ended(t)
	for name, c := range map[string]struct {
		change func(map[string]any)
		stale  bool
	}{
		"ended":  {func(m map[string]any) { m["pid"] = dead }, true},
		"alive":  {func(map[string]any) {}, false},
		"remote": {func(m map[string]any) { m["pid"] = dead; m["hostname"] = "elsewhere.example" }, false},
	} {
		dir := t.TempDir()
		put(t, dir, c.change)
		b := client(t, dir, beads.Options{})
		seen, err := b.Inspect(t.Context(), beads.Key)
		if err != nil || seen == nil {
			t.Fatal(seen, err)
		}
		if ok, err := b.Break(t.Context(), seen, true); ok != c.stale || err != nil {
			t.Errorf("%s, as stale: broken %v, %v", name, ok, err)
		}
		if ok, err := b.Break(t.Context(), seen, false); ok == c.stale || err != nil {
			t.Errorf("%s: broken %v, %v", name, ok, err)
		}
	}
}

// TestPIDReuse: a living process with the pid of the holder keeps the lock, although it began
// long after the lock.
func TestPIDReuse(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, func(m map[string]any) { m["started_at"] = "2001-01-01T00:00:00Z" })
	b := client(t, dir, beads.Options{})
	if _, ok, err := b.TryLock(t.Context(), beads.Key, ttl); ok || err != nil {
		t.Errorf("acquired %v, %v", ok, err)
	}
	info, err := b.Inspect(t.Context(), beads.Key)
	if err != nil || info == nil || info.Stale || !info.Acquired.Equal(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v, %v", info, err)
	}
}
