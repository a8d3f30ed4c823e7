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

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

func TestCheckKey(t *testing.T) {
	for key, good := range map[string]bool{
		"index/lock.exclusive":     true,
		"a":                        true,
		"...":                      true,
		"a..b/.c":                  true,
		"a:b c%2f":                 true,
		"ü/日本":                     true,
		strings.Repeat("x", 1024):  true,
		strings.Repeat("x", 1025):  false,
		strings.Repeat("ü", 513):   false,
		"":                         false,
		"/":                        false,
		"/a":                       false,
		"a/":                       false,
		"a//b":                     false,
		".":                        false,
		"..":                       false,
		"a/../b":                   false,
		"a/.":                      false,
		`a\b`:                      false,
		"a\x00":                    false,
		"\xff":                     false,
		"a/\xed\xa0\x80 surrogate": false,
	} {
		if err := store.CheckKey(key); (err == nil) != good || err != nil && !errors.Is(err, store.ErrInvalidKey) {
			t.Errorf("%.20q: %v", key, err)
		}
	}
}

// FuzzCheckKey compares CheckKey with io/fs, whose rule for a path that stays inside is a
// little less strict.
func FuzzCheckKey(f *testing.F) {
	for _, seed := range []string{"", "a", "a/b", "/a", "a/", "a//b", ".", "..", "a/../b", `a\b`, "a\x00b", "\xff", "...", "a/..b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		want := fs.ValidPath(key) && key != "." && len(key) <= 1024 && !strings.ContainsAny(key, "\x00\\")
		err := store.CheckKey(key)
		if (err == nil) != want || err != nil && !errors.Is(err, store.ErrInvalidKey) {
			t.Fatalf("%q: %v", key, err)
		}
	})
}

func TestErrors(t *testing.T) {
	err := error(&store.Error{Op: "put", Key: "index/lock.exclusive", Err: store.ErrPrecondition})
	if got := err.Error(); got != `put "index/lock.exclusive": precondition failed` {
		t.Error(got)
	}
	if !errors.Is(err, store.ErrPrecondition) || !store.Permanent(err) {
		t.Errorf("%v is permanent", err)
	}
	if store.Permanent(&store.Error{Op: "get", Key: "k", Err: errors.New("connection reset")}) || store.Permanent(nil) {
		t.Error("nothing is known of it, so it may pass")
	}
	for c, want := range map[store.Condition]string{store.Kept: "kept", store.Claimed: "claimed", store.Unsupported: "unsupported", 9: "unsupported"} {
		if c.String() != want {
			t.Errorf("%d is %q", int(c), c.String())
		}
	}
}

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

// listing is a store whose listings have these keys.
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

// TestFiniteRefuses: a key twice, an order that isn't one and a key that wasn't asked for are errors.
func TestFiniteRefuses(t *testing.T) {
	for _, keys := range [][]string{{"a/1", "a/1"}, {"a/2", "a/1"}, {"a/1", "b"}} {
		if page, err := store.Finite(listing{keys: keys}).List(t.Context(), "a/", ""); !errors.Is(err, store.ErrListing) {
			t.Errorf("%q: %+v, %v", keys, page, err)
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
	if err := store.DeleteIfMatch(t.Context(), only{m}, "a", o.ETag); !errors.Is(err, store.ErrConditionUnsent) {
		t.Errorf("a conditional deletion on a store that can't: %v", err)
	}
}

// only has the methods of a store.Store and no others.
type only struct{ store.Store }

// TestAnswers: anything but silence is an answer, and neither a request that was withdrawn nor one that
// was never sent is one.
func TestAnswers(t *testing.T) {
	hooks := &hookstore.Store{Store: mem.New(mem.Options{NoBatch: true})}
	s := &store.Answers{Store: hooks}
	for _, c := range []struct {
		err      error
		answered bool
	}{{store.Unreachable(errors.New("no")), false}, {context.Canceled, false}, {store.ErrPermission, true}, {nil, true}} {
		hooks.Before(func(context.Context, hookstore.Request) error { return c.err })
		for op, send := range map[string]func(){
			"put":    func() { _, _ = s.Put(t.Context(), "k", nil, store.PutOptions{}) },
			"get":    func() { _, _, _ = s.Get(t.Context(), "k", 1) },
			"list":   func() { _, _ = s.List(t.Context(), "", "") },
			"delete": func() { _ = s.Delete(t.Context(), "k") },
		} {
			silent := s.Listen()
			if send(); silent() == c.answered {
				t.Errorf("%s, %v: silent %v", op, c.err, silent())
			}
		}
	}
	unsent := &store.Answers{Store: only{hooks}}
	if _, err := unsent.DeleteAll(t.Context(), []string{"k"}); !errors.Is(err, store.ErrBatchUnsent) || unsent.Answered() {
		t.Errorf("a batch that wasn't sent: %v, answered %v", err, unsent.Answered())
	}
}

// TestEveryLoopIsFinite: code that reads a listing page by page reads it through store.Finite.
// Other code passes one page on, or, in storetest, examines the pages themselves.
func TestEveryLoopIsFinite(t *testing.T) {
	one := regexp.MustCompile(`^(cmd/internal/session/answerstore|locking/repository/errors|internal/test/hookstore/.*|internal/test/sim/.*|store/[^/]*|store/(b2|dir|mem|s3|minio|internal)/.*|store/storetest/storetest)\.go$`)
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
