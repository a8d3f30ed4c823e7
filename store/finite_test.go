package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestFinite: a listing that ends is unchanged, whatever its keys and cursors.
func TestFinite(t *testing.T) {
	for size := 1; size < 4; size++ {
		m := mem.New(mem.Options{PageSize: size})
		want := []string{"a/1 2", "a/3 0 x", "a/é", "a0"}
		for _, key := range want {
			if _, err := m.Put(t.Context(), key, nil, store.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := store.Keys(t.Context(), store.Finite(m), "a")
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// TestFiniteEnds: on any store, a reader asks for at most as many pages as there are objects,
// and a hundred empty ones.
func TestFiniteEnds(t *testing.T) {
	for _, how := range hookstore.Ways {
		m := mem.New(mem.Options{})
		for i := range 4 {
			if _, err := m.Put(t.Context(), fmt.Sprint("a/", i), nil, store.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		s := &hookstore.Unending{Store: m, How: how, Most: 110}
		if _, err := store.Keys(t.Context(), s, "a/"); !errors.Is(err, store.ErrListing) || store.Permanent(err) {
			t.Errorf("%s: after %d pages: %v", how, s.Pages(), err)
		}
	}
	for _, cursor := range []string{"x", "1", "1 ", "1 2 x", "1 -1 x", "1 99999999999999999999 x"} {
		if _, err := store.Finite(mem.New(mem.Options{})).List(t.Context(), "a", cursor); !errors.Is(err, store.ErrListing) {
			t.Errorf("%q: %v", cursor, err)
		}
	}
}

// TestFiniteKeepsAbilities: the optional abilities of a store stay available.
func TestFiniteKeepsAbilities(t *testing.T) {
	m := mem.New(mem.Options{})
	o, err := m.Put(t.Context(), "a", []byte("x"), store.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.DeleteIfMatch(t.Context(), store.Finite(m), "a", "another"); !errors.Is(err, store.ErrPrecondition) {
		t.Errorf("another ETag: %v", err)
	}
	if err := store.DeleteIfMatch(t.Context(), store.Finite(m), "a", o.ETag); err != nil {
		t.Errorf("its ETag: %v", err)
	}
	if deleted, err := store.DeleteAll(t.Context(), store.Finite(m), []string{"a"}); err != nil || !deleted[0] {
		t.Errorf("delete all: %v, %v", deleted, err)
	}
	if deleted, err := store.DeleteAll(t.Context(), only{m}, []string{"a"}); !errors.Is(err, store.ErrBatchUnsent) || deleted[0] {
		t.Errorf("delete all on a store that can't: %v, %v", deleted, err)
	}
}

// only has the methods of a store.Store and no others.
type only struct{ store.Store }

// TestEveryLoopIsFinite: code that reads a listing page by page reads it through store.Finite.
// Other code passes one page on, or, in storetest, examines the pages themselves.
func TestEveryLoopIsFinite(t *testing.T) {
	one := regexp.MustCompile(`^(cmd/internal/session/answerstore|locking/repository/errors|internal/test/hookstore/.*|internal/test/sim/.*|store/[^/]*|store/(b2|dir|mem|s3|minio|internal)/.*|store/storetest/fixture)\.go$`)
	next := regexp.MustCompile(`\.List\([^()]*(?:\([^()]*\))?[^()]*, [^")]*\)`)
	found := 0
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || one.MatchString(name) {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !next.Match(text) {
			return err
		}
		found++
		if !strings.Contains(string(text), "store.Finite(") && !strings.HasPrefix(name, "replock/") { // whose New does it
			t.Errorf("%s: pages are read, and not through store.Finite: %s", name, next.Find(text))
		}
		return nil
	})
	if err != nil || found < 3 {
		t.Errorf("%d found: %v", found, err)
	}
}
