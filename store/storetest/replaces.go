package storetest

import (
	"errors"
	"testing"

	"github.com/repolock/repolock/store"
)

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
	etag := func() string {
		_, obj := f.get(t, "a/k")
		return obj.ETag
	}
	f.put(t, "a/k", "1")
	first := etag()
	if !put("2", first) {
		t.Error("refused, with the right etag")
	}
	f.holds(t, "a/k", "2")

	// Repeatedly, as renewals do.
	for range 3 {
		if !put("3", etag()) {
			t.Error("refused, with the right etag")
		}
		f.holds(t, "a/k", "3")
	}

	// Another has written in between.
	last := etag()
	if _, err := f.other.Put(t.Context(), "a/k", []byte("4"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	want := "4"
	if put("5", last) {
		want = "5"
	}
	f.holds(t, "a/k", want)

	// Another has deleted it in between.
	last = etag()
	if err := f.other.Delete(t.Context(), "a/k"); err != nil {
		t.Fatal(err)
	}
	want = ""
	if put("6", last) {
		want = "6"
	}
	f.holds(t, "a/k", want)
}
