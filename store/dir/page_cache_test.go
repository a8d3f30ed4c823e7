package dir

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/repolock/repolock/store"
)

// counted is a store that counts the scans of each directory.
func counted(t *testing.T, objects int) (s *Store, scans *int) {
	t.Helper()
	s, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	scans = new(int)
	s.scan = func(ctx context.Context, d *directory, wanted func(string) bool) ([]string, error) {
		*scans++
		return scan(ctx, d, wanted)
	}
	shared := filepath.Join(s.path, "index/lock.shared")
	if err := os.MkdirAll(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		if err := os.WriteFile(filepath.Join(shared, fmt.Sprintf("%05d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s, scans
}

func create(t *testing.T, s *Store, key string) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, nil, store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// keysFrom returns the keys of a listing from a cursor on, and its cursors.
func keysFrom(t *testing.T, s *Store, cursor string) (keys, cursors []string) {
	t.Helper()
	for {
		page, err := s.List(t.Context(), "index/lock.", cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Objects {
			keys = append(keys, o.Key)
		}
		if cursor = page.Next; cursor == "" {
			return keys, cursors
		}
		cursors = append(cursors, cursor)
	}
}

// TestOneScanForAListing: however many pages a listing has, each directory is scanned only for
// the first of them.
func TestOneScanForAListing(t *testing.T) {
	s, scans := counted(t, 3*pageSize+1)
	*scans = 0
	keys, cursors := keysFrom(t, s, "")
	if len(keys) != 3*pageSize+1 || !slices.IsSorted(keys) || len(cursors) != 3 {
		t.Fatalf("%d keys, %d cursors", len(keys), len(cursors))
	}
	if *scans != 4 { // two directories, each until two scans agree
		t.Errorf("%d scans for %d pages", *scans, len(cursors)+1)
	}
	// A page that is asked for again is the same.
	if _, err := s.List(t.Context(), "index/lock.", ""); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if page, err := s.List(t.Context(), "index/lock.", cursors[0]); err != nil || page.Next != cursors[1] || len(page.Objects) != pageSize {
			t.Errorf("%d objects, next %q, %v", len(page.Objects), page.Next, err)
		}
	}
}

// TestListingsShowWhatWasPut: a listing that begins after a put shows it, on any page and
// beside any other listings.
func TestListingsShowWhatWasPut(t *testing.T) {
	s, _ := counted(t, 2*pageSize)
	list := func(prefix, cursor string) string {
		page, err := s.List(t.Context(), prefix, cursor)
		if err != nil {
			t.Fatal(err)
		}
		return page.Next
	}
	shows := func(cursor, key string) {
		t.Helper()
		if keys, _ := keysFrom(t, s, cursor); !slices.Contains(keys, key) {
			t.Errorf("%s isn't shown", key)
		}
	}
	list("index/lock.", "")
	create(t, s, "index/lock.shared/99990")
	first := list("index/lock.", "") // began before the next put, and a newer one after it
	create(t, s, "index/lock.shared/99991")
	list("index/lock.", "")
	shows(first, "index/lock.shared/99991")

	first = list("index/lock.", "")
	list("index/", "") // another listing in between
	shows(first, "index/lock.shared/99991")
	shows("index/lock.shared/00500", "index/lock.shared/99991") // a cursor that it never returned

	// An object that was deleted since isn't listed, and one that was replaced is.
	first = list("index/lock.", "")
	if err := s.Delete(t.Context(), "index/lock.shared/01500"); err != nil {
		t.Fatal(err)
	}
	create(t, s, "index/lock.shared/01501")
	keys, _ := keysFrom(t, s, first)
	if slices.Contains(keys, "index/lock.shared/01500") || !slices.Contains(keys, "index/lock.shared/01501") {
		t.Error("later pages are of the past")
	}
}
