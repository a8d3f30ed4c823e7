package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/repolock/repolock/store"
)

func listEmpty(t *testing.T, f *fixture) {
	for _, prefix := range []string{"", "k", "index/lock.", "a/b/c/"} {
		page, err := f.store.List(t.Context(), prefix, "")
		if err != nil || len(page.Objects) != 0 || page.Next != "" {
			t.Errorf("%q: %+v, %v", prefix, page, err)
		}
	}
}

// tricky are keys whose byte order is not the order in which directories are
// walked, sorted: "-" and "." come before the slash, digits after it.
var tricky = []string{
	"a-b", "a.b", "a.d/x", "a/-", "a/b", "a/b-/c", "a/b.c", "a/bc/d", "a/bc0", "a0-/x", "a0/x", "a1", "b c", "ä", "日本/x",
}

func listOrder(t *testing.T, f *fixture) {
	for _, key := range slices.Backward(tricky) {
		f.put(t, key, key)
	}
	if diff := cmp.Diff(tricky, keys(list(t, f.store, ""))); diff != "" {
		t.Error(diff)
	}
}

func listPrefix(t *testing.T, f *fixture) {
	stored := []string{
		"index", "index.d/lock.x", "index0", "indexes/lock.exclusive",
		"inde/x", "lock.exclusive",
		"locks/lock.exclusive", "locks/lock.intent/x", "locks/lock.shared/y", "locks/lock/z", "locks/other",
	}
	for _, key := range stored {
		f.put(t, key, "")
	}
	for _, prefix := range []string{
		"", "i", "index", "index/", "index.", "l", "lock", "lock.", "locks", "locks/", "locks/lock", "locks/lock.",
		"locks/lock.exclusive", "locks/lock.exclusive/", "locks/lock.exclusivex", "locks/lock/", "locks/lock.s",
		"locks/lock.shared/", "locks/lock.shared/y", "locks/lock.shared/y/", "locks/p", "x/y/z",
		"/", "//", "../", "./", "locks/../locks/", "locks//", "locks/./", "../../etc/",
	} {
		want := []string{}
		for _, key := range stored {
			if strings.HasPrefix(key, prefix) {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, keys(list(t, f.store, prefix))); diff != "" {
			t.Errorf("%q: %s", prefix, diff)
		}
	}
}

// listPages checks that the pages are those that follow from their cursors only: in order,
// without a gap or an overlap. How many objects a page has is for the store to decide.
func listPages(t *testing.T, f *fixture) {
	n := 2500
	if f.Light {
		n = 1001
	}
	var want []string
	for i := range n {
		want = append(want, flag(i))
	}
	together(16, func(w int) {
		for i := w; i < n; i += 16 {
			if _, err := f.store.Put(t.Context(), flag(i), []byte("body"), store.PutOptions{}); err != nil {
				t.Errorf("put: %v", err)
			}
		}
	})
	f.put(t, "index/lock.sharee", "before")
	f.put(t, "index/lock.sharef", "after")
	if diff := cmp.Diff(want, keys(list(t, f.store, "index/lock.shared/"))); diff != "" {
		t.Error(diff)
	}

	// A reader that has seen enough stops, and a later listing starts at the front.
	first, err := f.store.List(t.Context(), "index/lock.shared/", "")
	if err != nil {
		t.Fatal(err)
	}
	seen := len(first.Objects)
	if first.Next == "" || seen == 0 || seen >= n {
		return // there is no page to continue after
	}
	if diff := cmp.Diff(want[:seen], keys(first.Objects)); diff != "" {
		t.Error(diff)
	}
	// A page continues after the one before, even if the object of the cursor was deleted.
	f.delete(t, first.Objects[seen-1].Key)
	f.put(t, "index/lock.shared/!", "before all of them")
	if diff := cmp.Diff(want[seen:], keys(listFrom(t, f.other, "index/lock.shared/", first.Next))); diff != "" {
		t.Error(diff)
	}
}

func listAgrees(t *testing.T, f *fixture) {
	for i, size := range []int{0, 1, 500, 64 << 10, 64<<10 + 1, 100_000} {
		key := fmt.Sprintf("index/%d", i)
		put := f.put(t, key, strings.Repeat("x", size))
		_, got := f.get(t, key)
		listed := list(t, f.other, key)
		if len(listed) != 1 {
			t.Fatalf("%d bytes: listed %+v", size, listed)
		}
		same := func(a, b store.Object) bool {
			// Some answers are more precise than others.
			precision := max(f.Precision, 1)
			return a.Key == b.Key && a.Size == b.Size && a.ETag == b.ETag && a.ModTime.Truncate(precision).Equal(b.ModTime.Truncate(precision))
		}
		if !same(got, listed[0]) || got.ModTime.IsZero() {
			t.Errorf("get told %+v, list %+v", got, listed[0])
		}
		if put.ETag == "" {
			put.ETag = got.ETag
		}
		if put.ModTime.IsZero() {
			put.ModTime = got.ModTime
		}
		if !same(put, got) {
			t.Errorf("put told %+v, get %+v", put, got)
		}
	}
}

// listAfterPut checks the guarantee on which the lock's safety rests.
func listAfterPut(t *testing.T, f *fixture) {
	writers, rounds := 8, f.rounds(30)
	var failed atomic.Bool
	together(writers, func(i int) {
		mine, theirs := f.store, f.other
		if i%2 == 1 {
			mine, theirs = theirs, mine
		}
		for n := range rounds {
			key := fmt.Sprintf("index/lock.shared/%d-%d", i, n)
			if _, err := mine.Put(t.Context(), key, []byte(key), store.PutOptions{}); err != nil {
				t.Errorf("put: %v", err)
			}
			found, err := lists(t.Context(), theirs, "index/lock.", key)
			if err != nil {
				t.Errorf("list: %v", err)
			} else if !found && failed.CompareAndSwap(false, true) {
				t.Errorf("%q was put and isn't listed", key)
			}
			if n%2 == 0 {
				if err := mine.Delete(t.Context(), key); err != nil {
					t.Errorf("delete: %v", err)
				}
			}
		}
	})
}

// lists reports whether the listing of a prefix shows a key.
func lists(ctx context.Context, s store.Store, prefix, key string) (bool, error) {
	s = store.Finite(s)
	for cursor := ""; ; {
		page, err := s.List(ctx, prefix, cursor)
		if err != nil || slices.Contains(keys(page.Objects), key) {
			return err == nil, err
		}
		if cursor = page.Next; cursor == "" {
			return false, nil
		}
	}
}

func listUnderOverwrites(t *testing.T, f *fixture) {
	n, rounds := 40, f.rounds(40)
	var want []string
	for i := range n {
		f.put(t, flag(i), "body")
		want = append(want, flag(i))
	}
	written, stop := f.writing(t, 4, func(w, round int) (key, body string) {
		return flag((w + 4*round) % n), strings.Repeat("x", round/10%50)
	})
	defer stop() // also after a listing that fails
	for round := 0; round < rounds || int(written.Load()) < rounds*n && !t.Failed(); round++ {
		if diff := cmp.Diff(want, keys(list(t, f.store, "index/lock."))); diff != "" {
			t.Error(diff)
			break
		}
	}
}

// A hint can be missed, so the tests delete again and again, and wait a little for each. No backend
// that gives hints misses so many.
const (
	hintTries = 100
	hintTime  = 100 * time.Millisecond
)

func watchHints(t *testing.T, f *fixture) {
	const prefix = "index/lock."
	f.put(t, "index/lock.exclusive", "body")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hints, err := store.Watch(ctx, f.store, prefix)
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"index/lock.exclusive", flag(1), "index/lock.intent/1"} {
		if !f.hinted(t, key, hints) {
			t.Fatalf("%d deletions of %s gave no hint", hintTries, key)
		}
	}
	if canceled, err := store.Watch(ended(), f.store, prefix); err == nil {
		t.Errorf("a watch whose context has ended: %v", canceled)
	}
}

// hinted reports whether deletions of a key by another handle give a hint.
func (f *fixture) hinted(t *testing.T, key string, hints <-chan struct{}) bool {
	t.Helper()
	select {
	case <-hints: // of the key before
	default:
	}
	for range hintTries {
		if _, err := f.other.Put(t.Context(), key, []byte("body"), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := f.other.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		select {
		case <-hints:
			return true
		case <-time.After(hintTime):
		}
	}
	return false
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
