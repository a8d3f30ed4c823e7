package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// FuzzCheckKey compares CheckKey with fs.ValidPath, which also allows long keys, "." and some characters.
func FuzzCheckKey(f *testing.F) {
	for _, seed := range []string{
		"index/lock.exclusive", "a", "a/b", "...", "a..b/.c", "a/..b", "a:b c%2f", "ü/日本", strings.Repeat("x", 1024), // good ones
		strings.Repeat("x", 1025), strings.Repeat("ü", 513), "", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.",
		`a\b`, "a\x00", "a\x00b", "\xff", "a/\xed\xa0\x80 surrogate",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		var want error
		if !fs.ValidPath(key) || key == "." || len(key) > 1024 || strings.ContainsAny(key, "\x00\\") {
			want = store.ErrInvalidKey
		}
		assert.Is(t, store.CheckKey(key), want, "%q", key)
	})
}

// TestFinite: a listing that ends is unchanged, whatever its keys and cursors.
func TestFinite(t *testing.T) {
	for size := 1; size < 4; size++ {
		m := memory.New(memory.Options{PageSize: size})
		want := []string{"a/1 2", "a/3 0 x", "a/é", "a0"}
		for _, key := range want {
			assert.OK(t, assert.Err(m.Put(t.Context(), key, nil, store.PutOptions{})))
		}
		got, err := store.Keys(t.Context(), store.Finite(m), "a")
		assert.Is(t, err, nil)
		assert.Equal(t, got, want)
	}
}

// TestFiniteEnds: on any store, a reader asks for at most as many pages as there are objects, and for a
// hundred empty ones. A cursor that isn't one of Finite's is an error.
func TestFiniteEnds(t *testing.T) {
	for _, how := range hookstore.Ways {
		m := memory.New(memory.Options{})
		for i := range 4 {
			assert.OK(t, assert.Err(m.Put(t.Context(), fmt.Sprint("a/", i), nil, store.PutOptions{})))
		}
		s := &hookstore.Unending{Store: m, How: how, Most: 110}
		_, err := store.Keys(t.Context(), s, "a/")
		assert.That(t, errors.Is(err, store.ErrListing) && !store.Permanent(err), "%s: after %d pages: %v", how, s.Pages(), err)
	}
	for _, cursor := range []string{"x", "1", "1 ", "1 2 x", "1 -1 x", "1 99999999999999999999 x"} {
		_, err := store.Finite(memory.New(memory.Options{})).List(t.Context(), "a", cursor)
		assert.Is(t, err, store.ErrListing, "%q", cursor)
	}
}

// TestPageOf: empty pages before a key's page are passed, and no page after it is asked for.
func TestPageOf(t *testing.T) {
	for page, c := range map[string]struct {
		keys  []string
		pages int
	}{
		"the first":   {[]string{"a", "ab"}, 1},
		"the third":   {[]string{"", "", "a", "ab"}, 3},
		"none":        {[]string{"", ""}, 2},
		"another key": {[]string{"", "ab"}, 2},
	} {
		s := &paged{keys: c.keys}
		got, err := store.PageOf(t.Context(), s, "a")
		assert.Is(t, err, nil)
		assert.That(t, s.asked == c.pages && len(got.Objects) == strings.Count(c.keys[c.pages-1], "a"), "%s: %d pages: %v", page, s.asked, got)
	}
	s := &paged{keys: []string{"", "!"}}
	_, err := store.PageOf(t.Context(), s, "a")
	assert.Is(t, err, store.ErrListing)
}

// paged is a store with one key on each page, or none. A page with the key "!" fails.
type paged struct {
	store.Store
	keys  []string
	asked int
}

func (s *paged) List(_ context.Context, _, cursor string) (page store.Page, err error) {
	n := len(cursor)
	s.asked++
	switch s.keys[n] {
	case "":
	case "!":
		return page, store.ErrListing
	default:
		page.Objects = []store.Object{{Key: s.keys[n]}}
	}
	if n+1 < len(s.keys) {
		page.Next = strings.Repeat("+", n+1)
	}
	return page, nil
}

// listing is a store whose only page has these keys.
type listing struct {
	store.Store
	keys []string
}

func (l listing) List(context.Context, string, string) (page store.Page, err error) {
	for _, key := range l.keys {
		page.Objects = append(page.Objects, store.Object{Key: key})
	}
	return page, nil
}

// TestFiniteRefuses: a key that is listed twice, out of order, or without the prefix is an error.
func TestFiniteRefuses(t *testing.T) {
	for _, keys := range [][]string{{"a/1", "a/1"}, {"a/2", "a/1"}, {"a/1", "b"}} {
		page, err := store.Finite(listing{keys: keys}).List(t.Context(), "a/", "")
		assert.Is(t, err, store.ErrListing, "%q: %+v", keys, page)
	}
}

// TestFiniteKeepsAbilities: Finite passes on the optional abilities of a store. A store that lacks one
// returns the error of an unsent request.
func TestFiniteKeepsAbilities(t *testing.T) {
	m := memory.New(memory.Options{})
	o, err := m.Put(t.Context(), "a", []byte("x"), store.PutOptions{})
	assert.OK(t, err)
	assert.Is(t, store.DeleteIfMatch(t.Context(), store.Finite(m), "a", "another"), store.ErrPrecondition,
		"with another ETag")
	assert.Is(t, store.DeleteIfMatch(t.Context(), store.Finite(m), "a", o.ETag), nil, "with its ETag")
	_, err = store.Watch(t.Context(), store.Finite(m), "a")
	assert.OK(t, err)
	deleted, err := store.DeleteAll(t.Context(), store.Finite(m), []string{"a"})
	assert.That(t, err == nil && deleted[0], "delete all: %v, %v", deleted, err)
	deleted, err = store.DeleteAll(t.Context(), only{m}, []string{"a"})
	assert.That(t, errors.Is(err, store.ErrBatchUnsent) && !deleted[0], "delete all on a store without it: %v, %v", deleted, err)
	assert.Is(t, store.DeleteIfMatch(t.Context(), only{m}, "a", o.ETag), store.ErrConditionUnsent,
		"a conditional deletion on a store without it")
}

// surveyed is a store that finds another object without a listing.
type surveyed struct {
	store.Store
	err error // of HasOther
}

func (s surveyed) HasOther(context.Context, string) (bool, error) { return true, s.err }

// TestHasOther: a store is asked for other objects, also through Finite. Its refusal is an error. A store that can't be
// asked is listed, and then a page without other objects shows nothing of later pages.
func TestHasOther(t *testing.T) {
	pages := &paged{keys: []string{"a", "b"}}
	for name, c := range map[string]struct {
		s             store.Store
		others, known bool
		err           error
	}{
		"asked":                 {surveyed{listing{}, nil}, true, true, nil},
		"refused":               {surveyed{listing{}, store.ErrPermission}, true, true, store.ErrPermission},
		"a decorator":           {surveyed{listing{keys: []string{"a"}}, errors.ErrUnsupported}, false, true, nil},
		"listed":                {listing{keys: []string{"a", "b"}}, true, true, nil},
		"listed, and only ours": {listing{keys: []string{"a"}}, false, true, nil},
		"more pages":            {pages, false, false, nil},
	} {
		for _, s := range []store.Store{c.s, store.Finite(c.s)} {
			others, known, err := store.HasOther(t.Context(), s, "a")
			assert.Is(t, err, c.err, name)
			assert.That(t, others == c.others && known == c.known, "%s, %T: %t, %t", name, s, others, known)
		}
	}
}

// TestPreparation: a Put takes what a List has prepared for its key, once. Anything else is undone: the thing of another
// List, and one that no Put takes.
func TestPreparation(t *testing.T) {
	undone := ""
	keep := func(ctx context.Context, made string) {
		store.Prepares(ctx).Keep(made, func() { undone += made })
	}
	ctx, done := store.Preparing(t.Context(), "k")
	keep(ctx, "1")
	keep(ctx, "2")
	assert.Equal(t, undone, "2")
	assert.That(t, store.Prepares(ctx).Take("other") == nil, "another key's Put takes it")
	assert.Equal(t, store.Prepares(ctx).Take("k"), any("1"))
	assert.That(t, store.Prepares(ctx).Take("k") == nil, "it is taken twice")
	done()
	assert.Equal(t, undone, "2")
	keep(ctx, "3")
	done()
	done()
	assert.Equal(t, undone, "23")
	assert.That(t, store.Prepares(t.Context()).Take("k") == nil, "a Put takes something without a List")
}

// only has the methods of a store.Store and no others.
type only struct{ store.Store }

// TestEveryLoopIsFinite: code that reads a listing page by page reads it through store.Finite. one
// matches the files that only pass a page on, or that test the pages themselves.
func TestEveryLoopIsFinite(t *testing.T) {
	one := regexp.MustCompile(`^(cmd/internal/answers/.*|internal/test/hookstore/.*|internal/test/sim/.*|store/[^/]*|store/(b2|dir|memory|s3|minio|internal)/.*|store/storetest/storetest)\.go$`)
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
	assert.That(t, err == nil && found >= 2, "%d found: %v", found, err)
}

// plain is a store that implements nothing but store.Store.
type plain struct{ store.Store }

// TestUnsupported: what a store doesn't implement is reported as unsupported, and nothing is done.
func TestUnsupported(t *testing.T) {
	s := plain{memory.New(memory.Options{})}
	assert.OK(t, assert.Err(s.Put(t.Context(), "k", nil, store.PutOptions{})))
	assert.Is(t, assert.Err(store.Watch(t.Context(), s, "")), errors.ErrUnsupported)
	assert.That(t, store.DeleteIfMatch(t.Context(), s, "k", "e") != nil, "deleted")
	_, err := store.DeleteAll(t.Context(), s, []string{"k"})
	assert.Is(t, err, store.ErrBatchUnsupported)
	keys, err := store.Keys(t.Context(), s, "")
	assert.That(t, err == nil && len(keys) == 1, "%q, %v", keys, err)
}
