package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/repolock/repolock/store"
)

func putIsReadBack(t *testing.T, f *fixture) {
	put := f.put(t, "index/lock.exclusive", "body")
	body, got := f.get(t, "index/lock.exclusive")
	if body != "body" || got.Size != 4 {
		t.Errorf("got %q, size %d", body, got.Size)
	}
	if put.Key != "index/lock.exclusive" || got.Key != put.Key || put.Size != 4 {
		t.Errorf("put told %+v, get %+v", put, got)
	}
	if got.ETag == "" || got.ModTime.IsZero() {
		t.Errorf("get told no etag or mod time: %+v", got)
	}
}

func putOverwrites(t *testing.T, f *fixture) {
	f.put(t, "k", "a longer body than the next")
	f.put(t, "k", "new")
	if body, _ := f.get(t, "k"); body != "new" {
		t.Errorf("got %q", body)
	}
	if got := keys(list(t, f.store, "")); len(got) != 1 {
		t.Errorf("listed %q", got)
	}
}

func putCopies(t *testing.T, f *fixture) {
	body := []byte("as put")
	if _, err := f.store.Put(t.Context(), "k", body, store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	copy(body, "XXXXXX")
	read, _, err := f.store.Get(t.Context(), "k", limit)
	if err != nil {
		t.Fatal(err)
	}
	if string(read) != "as put" {
		t.Fatalf("got %q", read)
	}
	copy(read, "YYYYYY")
	if again, _ := f.get(t, "k"); again != "as put" {
		t.Errorf("got %q after what was read before was written to", again)
	}
}

func putEmpty(t *testing.T, f *fixture) {
	for _, body := range [][]byte{nil, {}} {
		if _, err := f.store.Put(t.Context(), "k", body, store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		got, obj, err := f.store.Get(t.Context(), "k", 0)
		if err != nil || len(got) != 0 || obj.Size != 0 || obj.ETag == "" {
			t.Errorf("got %q, %+v, %v", got, obj, err)
		}
	}
	if got := list(t, f.store, ""); len(got) != 1 || got[0].Size != 0 {
		t.Errorf("listed %+v", got)
	}
}

func putBinary(t *testing.T, f *fixture) {
	var b strings.Builder
	for i := range 256 {
		b.WriteByte(byte(i))
	}
	body := strings.Repeat(b.String()+"\r\n", 1000)
	f.put(t, "k", body)
	if got, _ := f.get(t, "k"); got != body {
		t.Errorf("got other bytes (%d of %d)", len(got), len(body))
	}
}

func putDurable(t *testing.T, f *fixture) {
	for _, key := range []string{"k", "index/lock.shared/1"} {
		if _, err := f.store.Put(t.Context(), key, []byte("body"), store.PutOptions{Durable: true}); err != nil {
			t.Fatal(err)
		}
		if body, _ := f.get(t, key); body != "body" {
			t.Errorf("got %q", body)
		}
	}
}

func getLimit(t *testing.T, f *fixture) {
	for _, size := range []int{5, 100_000} {
		f.put(t, "k", strings.Repeat("x", size))
		if body, _, err := f.store.Get(t.Context(), "k", int64(size)); err != nil || len(body) != size {
			t.Errorf("at the limit: %d bytes, %v", len(body), err)
		}
		for _, limit := range []int64{int64(size) - 1, 1, 0} {
			body, _, err := f.store.Get(t.Context(), "k", limit)
			if !errors.Is(err, store.ErrTooLarge) || len(body) != 0 {
				t.Errorf("%d bytes with the limit %d: got %d, %v", size, limit, len(body), err)
			}
		}
	}
}

func getNotFound(t *testing.T, f *fixture) {
	f.put(t, "a/b/c", "")
	for _, key := range []string{"k", "a", "a/b", "a/b/d", "a/c", "a/b/c/d", "A/b/e"} {
		if _, _, err := f.store.Get(t.Context(), key, limit); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func deleteRemoves(t *testing.T, f *fixture) {
	f.put(t, "a/b", "1")
	f.put(t, "a/c", "2")
	f.delete(t, "a/b")
	if _, _, err := f.store.Get(t.Context(), "a/b", limit); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if got := keys(list(t, f.other, "")); len(got) != 1 || got[0] != "a/c" {
		t.Errorf("listed %q", got)
	}
	f.put(t, "a/b", "3")
	if body, _ := f.get(t, "a/b"); body != "3" {
		t.Errorf("put again: got %q", body)
	}
}

func deleteIsIdempotent(t *testing.T, f *fixture) {
	f.put(t, "a/b", "")
	for _, key := range []string{"k", "a", "a/c", "a/b/c", "c/d/e"} {
		f.delete(t, key)
	}
	if got := keys(list(t, f.store, "")); len(got) != 1 {
		t.Errorf("listed %q", got)
	}
	f.delete(t, "a/b")
	f.delete(t, "a/b")
}

func etagChanges(t *testing.T, f *fixture) {
	seen := map[string]string{}
	for _, body := range []string{"", "a", "b", "aa", "c", strings.Repeat("a", 70_000)} {
		put := f.put(t, "k", body)
		_, got := f.get(t, "k")
		if put.ETag != "" && put.ETag != got.ETag {
			t.Errorf("put told %q, get %q", put.ETag, got.ETag)
		}
		if old, found := seen[got.ETag]; found {
			t.Errorf("%.9q and %.9q have the etag %q", old, body, got.ETag)
		}
		seen[got.ETag] = body
	}
}

// oneClock checks the clock by which staleness is computed: Page.Now is no later than the mod
// time of an object that is put after List has returned.
func oneClock(t *testing.T, f *fixture) {
	for range f.rounds(200) {
		page, err := f.store.List(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		f.put(t, "k", "body")
		_, after := f.get(t, "k")
		if !page.Now.IsZero() && page.Now.Sub(after.ModTime) > f.Precision {
			t.Fatalf("written at %v, after a list that was answered at %v", after.ModTime, page.Now)
		}
		again, err := f.store.List(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		if again.Now.IsZero() != page.Now.IsZero() || again.Now.Before(page.Now) {
			t.Fatalf("now was %v and then %v", page.Now, again.Now)
		}
		f.delete(t, "k")
	}
}

// replaces: a Put with Replaces succeeds if the object has that ETag. Otherwise the backend
// either ignores Replaces and writes, or returns ErrPrecondition and leaves the object as
// others have left it.
func replaces(t *testing.T, f *fixture) {
	put := func(body, etag string) bool {
		t.Helper()
		_, err := f.store.Put(t.Context(), "a/k", []byte(body), store.PutOptions{Replaces: etag})
		if err != nil && !errors.Is(err, store.ErrPrecondition) {
			t.Fatalf("put: %v", err)
		}
		return err == nil
	}
	f.put(t, "a/k", "1")
	for _, body := range []string{"2", "3", "3", "3"} { // repeatedly, as renewals do
		if !put(body, f.etag(t)) {
			t.Error("refused, with the right etag")
		}
		f.holds(t, "a/k", body)
	}

	// Another has written in between.
	last := f.etag(t)
	if _, err := f.other.Put(t.Context(), "a/k", []byte("4"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	f.either(t, put("5", last), "5", "4")

	// Another has deleted it in between.
	last = f.etag(t)
	if err := f.other.Delete(t.Context(), "a/k"); err != nil {
		t.Fatal(err)
	}
	f.either(t, put("6", last), "6", "")
}

// deleteAll deletes many objects in one request, if the backend can: those that it reports as
// deleted are gone, for the other handle too, no other object is, and Delete deletes the rest.
func deleteAll(t *testing.T, f *fixture) {
	var asked []string
	for i := range 40 {
		key := fmt.Sprintf("index/lock.shared/%02d", i)
		if i%5 != 1 { // the others were never there
			f.put(t, key, key)
		}
		asked = append(asked, key)
	}
	asked = append(asked, "/invalid", "index/../invalid")
	f.put(t, "index/lock.shared/other", "other")
	f.put(t, "index/lock.shared/01/below", "other")

	deleted, err := store.DeleteAll(ended(), f.store, asked)
	if err == nil || !errors.Is(err, store.ErrBatchUnsupported) && !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
	f.goneIfDeleted(t, asked, deleted, err)

	deleted, err = store.DeleteAll(t.Context(), f.store, asked)
	if err != nil && !errors.Is(err, store.ErrBatchUnsupported) {
		t.Fatalf("delete all: %v", err)
	}
	f.goneIfDeleted(t, asked, deleted, err)
	for i, key := range asked {
		if store.CheckKey(key) == nil && !deleted[i] {
			f.delete(t, key)
		}
	}
	if left := keys(list(t, f.other, "")); len(left) != 2 {
		t.Errorf("left: %q, want two", left)
	}
	f.put(t, asked[2], "again")
	f.holds(t, asked[2], "again")
}

// goneIfDeleted checks the report of a deletion of many keys against what is stored.
func (f *fixture) goneIfDeleted(t *testing.T, asked []string, deleted []bool, err error) {
	t.Helper()
	if len(deleted) != len(asked) {
		t.Fatalf("%d keys, and %d are reported", len(asked), len(deleted))
	}
	there := map[string]bool{}
	for _, key := range keys(list(t, f.other, "")) {
		there[key] = true
	}
	for i, key := range asked {
		if deleted[i] && (err != nil || there[key] || store.CheckKey(key) != nil) {
			t.Errorf("%q is reported as deleted, with the error %v; it is listed: %t", key, err, there[key])
		}
	}
	if !there["index/lock.shared/other"] || !there["index/lock.shared/01/below"] {
		t.Error("another object is gone")
	}
}
