package b2_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/store"
)

// uncovered checks that a reader never sees an older version after a newer one.
type uncovered struct {
	mu     sync.Mutex
	newest map[string]int64
	found  []string
}

func (u *uncovered) changed(c fakeb2.Change) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.newest == nil {
		u.newest = map[string]int64{}
	}
	v := c.Visible()
	if v != nil && v.Timestamp < u.newest[c.Name] {
		u.found = append(u.found, fmt.Sprintf("%s uncovered %q under %s", c.Call, v.Body, c.Name))
	}
	if v != nil {
		u.newest[c.Name] = max(u.newest[c.Name], v.Timestamp)
	}
}

func (u *uncovered) check(t *testing.T) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, what := range u.found {
		t.Error(what)
	}
}

func put(t *testing.T, s store.Store, key, body string) store.Object {
	t.Helper()
	return replace(t, s, key, body, "")
}

func replace(t *testing.T, s store.Store, key, body, etag string) store.Object {
	t.Helper()
	o, err := s.Put(t.Context(), key, []byte(body), store.PutOptions{Replaces: etag})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// has checks all versions, newest first: "-" is a hide marker.
func (f *fake) has(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, v := range f.Versions(bucket) {
		if v.Action == "hide" {
			got = append(got, "-")
		} else {
			got = append(got, string(v.Body))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("versions %q, want %q", got, want)
	}
}

// TestDeleteLeavesNothing: Delete removes all versions, however many, of all writers.
func TestDeleteLeavesNothing(t *testing.T) {
	for _, n := range []int{1, 2, 6, 7, 8, 30} {
		var u uncovered
		f := serve(t, fakeb2.Options{PageSize: 7, Changed: u.changed})
		for i := range n {
			put(t, f.open(t), "a/k", fmt.Sprint(i))
		}
		put(t, f.open(t), "a/k2", "another")
		put(t, f.open(t), "a/k/x", "another one")
		if got := len(f.Versions(bucket)); got != n+2 {
			t.Fatalf("%d versions, want %d", got, n+2)
		}
		if err := f.open(t).Delete(t.Context(), "a/k"); err != nil {
			t.Error(err)
		}
		f.has(t, "another one", "another")
		u.check(t)
	}
}

// TestDeleteOfWhatIsHidden: Delete removes the versions under a hide marker too.
func TestDeleteOfWhatIsHidden(t *testing.T) {
	var u uncovered
	f := serve(t, fakeb2.Options{Changed: u.changed})
	s := f.open(t)
	put(t, f.open(t), "k", "1")
	f.hide(t, "k")
	put(t, f.open(t), "k", "2")
	f.hide(t, "k")
	f.has(t, "-", "2", "-", "1")
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	f.has(t)
	u.check(t)
}

// TestRefreshLeavesOne: a refresh leaves one version, whatever versions others have left.
func TestRefreshLeavesOne(t *testing.T) {
	var u uncovered
	f := serve(t, fakeb2.Options{Changed: u.changed})
	s := f.open(t)
	o := put(t, s, "k", "0")
	for i := range 5 {
		o = replace(t, s, "k", fmt.Sprint(i), o.ETag)
		f.has(t, fmt.Sprint(i))
	}
	put(t, f.open(t), "k", "another's")
	o = put(t, f.open(t), "k", "another's, again")
	replace(t, s, "k", "ours", o.ETag)
	f.has(t, "ours")
	u.check(t)
}

// TestPutRemovesItsOwn: without Replaces, Put removes the version that this process has put
// before.
func TestPutRemovesItsOwn(t *testing.T) {
	var u uncovered
	f := serve(t, fakeb2.Options{Changed: u.changed})
	s := f.open(t)
	put(t, s, "k", "1")
	put(t, s, "k", "2")
	f.has(t, "2")
	put(t, f.open(t), "k", "another's")
	put(t, s, "k", "3")
	f.has(t, "3", "another's")
	u.check(t)
}

// TestReplacesWhatIsGone: an object that was deleted, hidden or replaced between a look and a
// put stays so.
func TestReplacesWhatIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(*testing.T, *fake)
		left      []string
	}{
		"deleted":   {func(t *testing.T, f *fake) { f.delete(t, "k") }, nil},
		"hidden":    {func(t *testing.T, f *fake) { f.hide(t, "k") }, []string{"-", "1"}},
		"replaced":  {func(t *testing.T, f *fake) { put(t, f.open(t), "k", "2") }, []string{"2", "1"}},
		"made anew": {func(t *testing.T, f *fake) { f.delete(t, "k"); put(t, f.open(t), "k", "2") }, []string{"2"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, fakeb2.Options{})
			s := f.open(t)
			o := put(t, s, "k", "1")
			test.meanwhile(t, f)
			if _, err := s.Put(t.Context(), "k", []byte("new"), store.PutOptions{Replaces: o.ETag}); !errors.Is(err, store.ErrPrecondition) {
				t.Error(err)
			}
			f.has(t, test.left...)
		})
	}
}

// TestReplacesWithoutDelete: if a key can't remove its late put, the store puts the earlier
// version on top of it.
func TestReplacesWithoutDelete(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(*testing.T, *fake)
		left      []string
	}{
		"nothing":  {func(*testing.T, *fake) {}, []string{"new", "1"}},
		"deleted":  {func(t *testing.T, f *fake) { f.delete(t, "k") }, []string{"-", "new"}},
		"hidden":   {func(t *testing.T, f *fake) { f.hide(t, "k") }, []string{"-", "new", "-", "1"}},
		"replaced": {func(t *testing.T, f *fake) { put(t, f.open(t), "k", "2") }, []string{"2", "new", "2", "1"}},
		"emptied":  {func(t *testing.T, f *fake) { put(t, f.open(t), "k", "") }, []string{"", "new", "", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, fakeb2.Options{})
			s := f.openAs(t, fakeb2.Key{Capabilities: []string{"listBuckets", "listFiles", "readFiles", "writeFiles"}})
			o := put(t, s, "k", "1")
			test.meanwhile(t, f)
			_, err := s.Put(t.Context(), "k", []byte("new"), store.PutOptions{Replaces: o.ETag})
			if name == "nothing" && err != nil || name != "nothing" && !errors.Is(err, store.ErrPrecondition) {
				t.Error(err)
			}
			f.has(t, test.left...)
		})
	}
}

// TestCoveredWithoutDelete: a put came too late and can't be removed, and another's put covers
// it before the store notices. The store leaves both.
func TestCoveredWithoutDelete(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	s, other := f.openAs(t, fakeb2.Key{Capabilities: []string{"listBuckets", "listFiles", "readFiles", "writeFiles"}}), f.open(t)
	o := put(t, s, "k", "1")
	f.hide(t, "k")
	var once sync.Once
	f.Before(func(call string, _ *http.Request) {
		if call == "b2_list_file_versions" {
			once.Do(func() { put(t, other, "k", "another's") })
		}
	})
	if _, err := s.Put(t.Context(), "k", []byte("new"), store.PutOptions{Replaces: o.ETag}); !errors.Is(err, store.ErrPrecondition) {
		t.Error(err)
	}
	f.has(t, "another's", "new", "-", "1")
}

// TestOwedLook: if the look after a put fails, the next put repeats it first.
func TestOwedLook(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprintf("deleted=%v", deleted), func(t *testing.T) {
			f := serve(t, fakeb2.Options{})
			s := f.open(t)
			first := put(t, s, "k", "1")
			if deleted {
				f.delete(t, "k")
			}
			f.Fail("b2_list_file_versions", 1, 503, "service_unavailable")
			if _, err := s.Put(t.Context(), "k", []byte("2"), store.PutOptions{Replaces: first.ETag}); err == nil || store.Permanent(err) {
				t.Fatal(err)
			}
			_, seen, err := s.Get(t.Context(), "k", 100)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Put(t.Context(), "k", []byte("3"), store.PutOptions{Replaces: seen.ETag})
			if deleted {
				if !errors.Is(err, store.ErrPrecondition) {
					t.Error(err)
				}
				f.has(t)
				return
			}
			if err != nil {
				t.Error(err)
			}
			f.has(t, "3")
		})
	}
}

// TestTakingBackFails: a put that came too late, and whose removal fails, is removed later.
func TestTakingBackFails(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	s := f.open(t)
	first := put(t, s, "k", "1")
	f.delete(t, "k")
	f.Fail("b2_delete_file_version", 1, 503, "service_unavailable")
	if _, err := s.Put(t.Context(), "k", []byte("2"), store.PutOptions{Replaces: first.ETag}); err == nil || store.Permanent(err) {
		t.Fatal(err)
	}
	_, seen, err := s.Get(t.Context(), "k", 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "k", []byte("3"), store.PutOptions{Replaces: seen.ETag}); !errors.Is(err, store.ErrPrecondition) {
		t.Error(err)
	}
	f.has(t)
}

func (f *fake) delete(t *testing.T, key string) {
	t.Helper()
	if err := f.open(t).Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

// hide is a deletion without the permission to delete.
func (f *fake) hide(t *testing.T, key string) {
	t.Helper()
	s := f.openAs(t, fakeb2.Key{Capabilities: []string{"listBuckets", "writeFiles"}})
	if err := s.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}
