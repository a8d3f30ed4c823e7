package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/repolock/repolock/store"
)

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

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	deleted, err := store.DeleteAll(ended, f.store, asked)
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
