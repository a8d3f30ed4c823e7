package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// tricky are keys in byte order, which isn't the order of a walk through directories: "-" and "." come
// before the slash, and digits after it.
var tricky = []string{
	"a-b", "a.b", "a.d/x", "a/-", "a/b", "a/b-/c", "a/b.c", "a/bc/d", "a/bc0", "a0-/x", "a0/x", "a1", "b c", "ä", "日本/x",
}

func listOrder(t *testing.T, f *fixture) {
	for _, key := range slices.Backward(tricky) {
		f.put(t, key, key)
	}
	assert.Equal(t, keys(list(t, f.store, "")), tricky)
}

func listPrefix(t *testing.T, f *fixture) {
	for _, prefix := range []string{"", "k", "index/lock.", "a/b/c/"} {
		assert.Equal(t, keys(list(t, f.store, prefix)), nil, "nothing is there: %q", prefix)
	}
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
		want := slices.DeleteFunc(slices.Sorted(slices.Values(stored)), func(key string) bool {
			return !strings.HasPrefix(key, prefix)
		})
		// A file system can't have keys below an object's, so it refuses to look for them.
		below := slices.ContainsFunc(stored, func(key string) bool { return strings.HasPrefix(prefix, key+"/") })
		if _, err := f.store.List(t.Context(), prefix, ""); below && errors.Is(err, store.ErrIrregular) {
			continue
		}
		assert.Equal(t, keys(list(t, f.store, prefix)), want, "%q", prefix)
	}
}

// listSkipping checks that a listing shows all objects below a folder that it could skip, and asks only for folders.
func listSkipping(t *testing.T, f *fixture) {
	for _, key := range tricky {
		f.put(t, key, key)
	}
	assert.Equal(t, keys(list(t, skipping{f.store, t}, "")), tricky)
}

// skipping is a store whose listings can skip each folder.
type skipping struct {
	store.Store
	t *testing.T
}

func (s skipping) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	return s.Store.List(store.Skipping(ctx, func(folder string) bool {
		assert.That(s.t, strings.HasSuffix(folder, "/"), "asked for %q, which is no folder's key", folder)
		return true
	}), prefix, cursor)
}

// listPages checks that no object is missing or repeated between pages. The store decides how many objects a page has.
func listPages(t *testing.T, f *fixture) {
	n := 2500
	if f.Light {
		n = 1001
	}
	var want []string
	for i := range n {
		want = append(want, flag(i))
	}
	f.together(16, func(w int, s, _ store.Store) {
		for i := w; i < n; i += 16 {
			assert.Is(t, assert.Err(s.Put(t.Context(), flag(i), []byte("body"), store.PutOptions{})), nil, "put")
		}
	})
	f.put(t, "index/lock.sharee", "before")
	f.put(t, "index/lock.sharef", "after")
	assert.Equal(t, keys(list(t, f.store, "index/lock.shared/")), want)

	// A reader can stop after any page. A later listing begins at the front.
	first, err := f.store.List(t.Context(), "index/lock.shared/", "")
	assert.OK(t, err)
	seen := len(first.Objects)
	if first.Next == "" || seen == 0 || seen >= n {
		return // the listing has a single page
	}
	assert.Equal(t, keys(first.Objects), want[:seen])
	// A page continues after the last key of the one before, even if that object was deleted.
	f.delete(t, first.Objects[seen-1].Key)
	f.put(t, "index/lock.shared/!", "before all of them")
	assert.Equal(t, keys(listFrom(t, f.other, "index/lock.shared/", first.Next)), want[seen:])
}

func listAgrees(t *testing.T, f *fixture) {
	const key = "index/k"
	same := func(a, b store.Object) bool {
		// Answers can have mod times of different precision.
		precision := max(f.Precision, 1)
		return a.Key == b.Key && a.Size == b.Size && a.ETag == b.ETag && a.ModTime.Truncate(precision).Equal(b.ModTime.Truncate(precision))
	}
	xs := strings.Repeat("x", 100_000)
	seen := map[string]bool{}
	for _, body := range []string{"", "a", "b", "aa", "c", xs[:500], xs[:64<<10], xs[:64<<10+1], xs} {
		put := f.put(t, key, body)
		_, got := f.get(t, key)
		listed := list(t, f.other, key)
		assert.Need(t, len(listed) == 1, "%d bytes: listed %+v", len(body), listed)
		assert.That(t, same(got, listed[0]) && !got.ModTime.IsZero(), "get returned %+v, and list %+v", got, listed[0])
		put.ETag = cmp.Or(put.ETag, got.ETag)
		if put.ModTime.IsZero() {
			put.ModTime = got.ModTime
		}
		assert.That(t, same(put, got), "put returned %+v, and get %+v", put, got)
		assert.That(t, !seen[got.ETag], "%.9q has the etag of another body: %s", body, got.ETag)
		seen[got.ETag] = true
	}
}

// listAfterPut checks the guarantee on which the lock's safety depends: a List shows every earlier Put.
func listAfterPut(t *testing.T, f *fixture) {
	rounds := f.rounds(30)
	var failed atomic.Bool
	f.together(8, func(i int, mine, theirs store.Store) {
		for n := range rounds {
			key := fmt.Sprintf("index/lock.shared/%d-%d", i, n)
			assert.Is(t, assert.Err(mine.Put(t.Context(), key, []byte(key), store.PutOptions{})), nil, "put")
			listed, err := store.Keys(t.Context(), theirs, "index/lock.")
			assert.Is(t, err, nil, "list")
			if !slices.Contains(listed, key) && failed.CompareAndSwap(false, true) {
				t.Errorf("%q was put and isn't listed", key)
			}
			if n%2 == 0 {
				assert.Is(t, mine.Delete(t.Context(), key), nil, "delete")
			}
		}
	})
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
	defer stop() // also if a listing fails
	for round := 0; !t.Failed() && (round < rounds || int(written.Load()) < rounds*n); round++ {
		assert.Equal(t, keys(list(t, f.store, "index/lock.")), want)
	}
}

// A single deletion might give no hint, so the test deletes again and again, and waits a little each
// time. No backend with hints misses so many deletions.
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
	assert.OK(t, err)
	for _, key := range []string{"index/lock.exclusive", flag(1), "index/lock.intent/1"} {
		if !f.hinted(t, key, hints) {
			t.Fatalf("%d deletions of %s gave no hint", hintTries, key)
		}
	}
	for _, key := range []string{"index/lock.exclusive", flag(1)} {
		f.put(t, key, "body")
		hints, err := store.Watch(ctx, f.store, key)
		assert.OK(t, err)
		for range 2 { // another object can have the key then
			assert.That(t, f.hinted(t, key, hints), "%d deletions of %s gave no hint, with this prefix", hintTries, key)
		}
	}
	_, err = store.Watch(ended(), f.store, prefix)
	assert.That(t, err != nil, "there is a watch whose context has ended")
}

// hinted reports whether deletions of a key by another handle give a hint.
func (f *fixture) hinted(t *testing.T, key string, hints <-chan struct{}) bool {
	t.Helper()
	select {
	case <-hints: // of the key before
	default:
	}
	for range hintTries {
		assert.OK(t, assert.Err(f.other.Put(t.Context(), key, []byte("body"), store.PutOptions{})))
		assert.OK(t, f.other.Delete(t.Context(), key))
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
