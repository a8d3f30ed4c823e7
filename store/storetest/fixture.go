package storetest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/repolock/repolock/store"
)

// limit is larger than any body of these tests.
const limit = 1 << 20

// fixture is a fresh store and a second handle on it.
type fixture struct {
	Config
	store, other store.Store
}

func (f *fixture) put(t *testing.T, key, body string) store.Object {
	t.Helper()
	obj, err := f.store.Put(t.Context(), key, []byte(body), store.PutOptions{})
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	return obj
}

func (f *fixture) get(t *testing.T, key string) (string, store.Object) {
	t.Helper()
	body, obj, err := f.store.Get(t.Context(), key, limit)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return string(body), obj
}

func (f *fixture) delete(t *testing.T, key string) {
	t.Helper()
	if err := f.store.Delete(t.Context(), key); err != nil {
		t.Fatalf("delete: %v", err)
	}
}

// rounds returns the number of rounds of a race.
func (f *fixture) rounds(n int) int {
	if f.Light {
		return max(n/10, 1)
	}
	return n
}

// maxEmpty is the number of pages in a row that can be empty.
const maxEmpty = 10_000

// list returns a whole listing.
func list(t *testing.T, s store.Store, prefix string) []store.Object {
	t.Helper()
	return listFrom(t, s, prefix, "")
}

// listFrom returns the rest of a listing, from a cursor on. It ends on any store: each page
// must begin after the one before.
func listFrom(t *testing.T, s store.Store, prefix, cursor string) []store.Object {
	t.Helper()
	var objects []store.Object
	for empty := 0; ; empty++ {
		page, err := s.List(t.Context(), prefix, cursor)
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		if len(page.Objects) > 0 {
			if n := len(objects); n > 0 && page.Objects[0].Key <= objects[n-1].Key {
				t.Fatalf("the page of the cursor %q begins with %q, and the one before ends with %q", cursor, page.Objects[0].Key, objects[n-1].Key)
			}
			objects, empty = append(objects, page.Objects...), 0
		}
		if page.Next == "" {
			return objects
		}
		if page.Next == cursor || empty == maxEmpty {
			t.Fatalf("the cursor %q leads nowhere", cursor)
		}
		cursor = page.Next
	}
}

func keys(objects []store.Object) []string {
	keys := make([]string, 0, len(objects))
	for _, o := range objects {
		keys = append(keys, o.Key)
	}
	return keys
}

// together runs n goroutines that start at the same time, and waits for them.
func together(n int, do func(i int)) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	all.Wait()
}

func flag(i int) string { return fmt.Sprintf("index/lock.shared/%04d", i) }
