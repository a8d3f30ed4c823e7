package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/repolock/repolock/store"
)

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
