package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// putIsReadBack puts bodies one after the other under a key: with every byte, and empty.
func putIsReadBack(t *testing.T, f *fixture) {
	const key = "index/lock.exclusive"
	binary := []byte("\r\n")
	for i := range 256 {
		binary = append(binary, byte(i))
	}
	for _, durable := range []bool{false, true} {
		for _, body := range [][]byte{bytes.Repeat(binary, 1000), []byte("a body"), []byte("another"), nil, {}} {
			size := int64(len(body))
			put, err := f.store.Put(t.Context(), key, body, store.PutOptions{Durable: durable})
			assert.OK(t, err)
			read, got, err := f.store.Get(t.Context(), key, size)
			assert.OK(t, err)
			assert.That(t, bytes.Equal(read, body), "%d bytes: got %d others", size, len(read))
			assert.That(t, got.ETag != "" && !got.ModTime.IsZero(), "get returned no etag or mod time: %+v", got)
			listed := list(t, f.store, "")
			assert.That(t, len(listed) == 1 && listed[0].Size == size, "%d bytes: listed %+v", size, listed)
			for _, o := range []store.Object{put, got} {
				assert.That(t, o.Key == key && o.Size == size, "%d bytes: put returned %+v, and get %+v", size, put, got)
			}
		}
		f.delete(t, key)
	}
}

func putCopies(t *testing.T, f *fixture) {
	body := []byte("as put")
	assert.OK(t, assert.Err(f.store.Put(t.Context(), "k", body, store.PutOptions{})))
	copy(body, "XXXXXX")
	read, _, err := f.store.Get(t.Context(), "k", limit)
	assert.OK(t, err)
	assert.Equal(t, string(read), "as put")
	copy(read, "YYYYYY")
	f.holds(t, "k", "as put") // although the caller has changed the body that it read
}

func getLimit(t *testing.T, f *fixture) {
	for _, size := range []int{5, 100_000} {
		f.put(t, "k", strings.Repeat("x", size))
		body, _, err := f.store.Get(t.Context(), "k", int64(size))
		assert.That(t, err == nil && len(body) == size, "at the limit: %d bytes, %v", len(body), err)
		for _, limit := range []int64{int64(size) - 1, 1, 0} {
			body, _, err := f.store.Get(t.Context(), "k", limit)
			assert.That(t, errors.Is(err, store.ErrTooLarge) && len(body) == 0,
				"%d bytes with the limit %d: got %d, %v", size, limit, len(body), err)
		}
	}
}

func getNotFound(t *testing.T, f *fixture) {
	f.put(t, "a/b/c", "")
	for _, key := range []string{"k", "a", "a/b", "a/b/d", "a/c", "a/b/c/d", "A/b/e"} {
		_, _, err := f.store.Get(t.Context(), key, limit)
		assert.Is(t, err, store.ErrNotFound, "%q", key)
	}
}

// deleteRemoves deletes one object, and leaves all others. It is no error to delete an object that
// doesn't exist.
func deleteRemoves(t *testing.T, f *fixture) {
	f.put(t, "a/b", "1")
	f.put(t, "a/c", "2")
	for _, key := range []string{"k", "a", "a/d", "a/b/c", "c/d/e"} {
		f.delete(t, key)
	}
	assert.Equal(t, keys(list(t, f.store, "")), []string{"a/b", "a/c"}, "others were deleted: listed")
	for range 2 {
		f.delete(t, "a/b")
		f.holds(t, "a/b", "")
		assert.Equal(t, keys(list(t, f.other, "")), []string{"a/c"}, "listed")
	}
	f.put(t, "a/b", "3")
	f.holds(t, "a/b", "3")
}

// oneClock checks the clock that decides when a lock is stale: Page.Now must be no later than the mod
// time of an object that is put after List has returned.
func oneClock(t *testing.T, f *fixture) {
	f.put(t, "k", "body") // a backend might not know the clock before
	f.delete(t, "k")
	for range f.rounds(200) {
		page, err := f.store.List(t.Context(), "", "")
		assert.OK(t, err)
		put := f.put(t, "k", "body")
		_, after := f.get(t, "k")
		if !page.Now.IsZero() && page.Now.Sub(after.ModTime) > f.Precision {
			t.Fatalf("written at %v, after a list that was answered at %v", after.ModTime, page.Now)
		}
		again, err := f.store.List(t.Context(), "", "")
		assert.OK(t, err)
		if again.Now.IsZero() != page.Now.IsZero() || again.Now.Before(page.Now) {
			t.Fatalf("now was %v and then %v", page.Now, again.Now)
		}
		if !put.Now.IsZero() && (put.Now.Before(page.Now) || put.Now.After(again.Now)) {
			t.Fatalf("now was %v, of a put %v, and then %v", page.Now, put.Now, again.Now)
		}
		f.delete(t, "k")
	}
}

// replaces puts with Replaces. If the object has that ETag, the Put must succeed. Otherwise the backend
// either ignores Replaces and writes, or returns ErrPrecondition and changes nothing.
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
		assert.That(t, put(body, f.etag(t)), "refused, with the right etag")
		f.holds(t, "a/k", body)
	}

	// Another process has written meanwhile.
	last := f.etag(t)
	assert.OK(t, assert.Err(f.other.Put(t.Context(), "a/k", []byte("4"), store.PutOptions{})))
	f.either(t, put("5", last), "5", "4")

	// Another process has deleted the object meanwhile.
	last = f.etag(t)
	assert.OK(t, f.other.Delete(t.Context(), "a/k"))
	f.either(t, put("6", last), "6", "")
}

// deleteAll deletes many objects in one request, if the backend can. The objects that it reports as
// deleted must be gone, also for the other handle, and no others. Delete must delete the rest.
func deleteAll(t *testing.T, f *fixture) {
	var asked []string
	for i := range 40 {
		key := fmt.Sprintf("index/lock.shared/%02d", i)
		if i%5 != 1 { // the other keys never have an object
			f.put(t, key, key)
		}
		asked = append(asked, key)
	}
	asked = append(asked, "/invalid", "index/../invalid")
	f.put(t, "index/lock.shared/other", "other")
	f.put(t, "index/lock.shared/01/below", "other")

	deleted, err := store.DeleteAll(ended(), f.store, asked)
	assert.That(t, errors.Is(err, store.ErrBatchUnsupported) || errors.Is(err, context.Canceled), "an ended context: %v", err)
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
	assert.Equal(t, keys(list(t, f.other, "")), []string{"index/lock.shared/01/below", "index/lock.shared/other"}, "left")
	f.put(t, asked[2], "again")
	f.holds(t, asked[2], "again")
}

// goneIfDeleted checks that the objects that were reported as deleted are gone, and no others.
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
		assert.That(t, !deleted[i] || err == nil && !there[key] && store.CheckKey(key) == nil,
			"%q is reported as deleted, with the error %v; it is listed: %t", key, err, there[key])
	}
	assert.That(t, there["index/lock.shared/other"] && there["index/lock.shared/01/below"], "another object is gone")
}
