package replock

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/tap"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

const pointer = "index/lock.exclusive"

// TestReleaseLeavesAnothersPointer: Release deletes lock.exclusive only if the body there
// is its own, and doesn't empty another's either.
func TestReleaseLeavesAnothersPointer(t *testing.T) {
	for name, another := range map[string][]byte{
		"of another client": foreign(time.Now(), false),
		"encrypted":         []byte("\x01 this is ciphertext"),
		"larger than locks": bytes.Repeat([]byte("x"), maxBody+1),
	} {
		for rights, refuse := range map[string]tap.Before{"may delete": nil, "may not delete": mayNotDelete} {
			t.Run(name+", "+rights, func(t *testing.T) {
				do(t, func(t *testing.T, w *world) {
					a := w.machine()
					k, err := a.Exclusive(t.Context(), "prune")
					mustLock(t, k, err)
					a.tap.Before(refuse)
					w.put(pointer, another)
					if err := k.Release(t.Context()); err != nil {
						t.Error(err)
					}
					w.has(pointer, another)
				})
			})
		}
	}
}

// TestWithdrawLeavesAnothersPointer: an acquirer that is refused deletes lock.exclusive only
// if the body there is its own.
func TestWithdrawLeavesAnothersPointer(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		another := foreign(time.Now(), false)
		w.put("index/lock.shared/2026-03-07T09:00:00Z", foreign(time.Now(), true))
		time.Sleep(10 * time.Second)
		a := w.machine()
		a.tap.Before(first("list", "", func(tap.Request) error {
			w.put(pointer, another)
			return nil
		}))
		k, err := a.Exclusive(t.Context(), "prune")
		mustHeld(t, k, err)
		w.has(pointer, another)
	})
}

// TestReleaseDeletesWhatItSaw: where the store keeps conditions, a body that comes after
// the look of a release isn't deleted, nor emptied.
func TestReleaseDeletesWhatItSaw(t *testing.T) {
	for rights, refuse := range map[string]tap.Before{"may delete": nil, "may not delete": mayNotDelete} {
		t.Run(rights, func(t *testing.T) {
			do(t, func(t *testing.T, w *world) {
				a := w.machine()
				k, err := a.Exclusive(t.Context(), "prune")
				mustLock(t, k, err)
				a.tap.Before(refuse)
				another := foreign(time.Now(), false)
				var came atomic.Bool
				a.tap.After(func(_ context.Context, r tap.Request, err error) error {
					if r.Op == "get" && r.Key == pointer && came.CompareAndSwap(false, true) {
						w.put(pointer, another)
					}
					return err
				})
				if err := k.Release(t.Context()); err != nil || !came.Load() {
					t.Errorf("%v, and looked: %v", err, came.Load())
				}
				w.has(pointer, another)
			})
		})
	}
}

// refusesDeletes claims conditional deletes, and answers each that its condition isn't met.
type refusesDeletes struct{ store.Store }

func (refusesDeletes) DeleteIfMatch(context.Context, string, string) error {
	return store.ErrPrecondition
}

// TestReleaseWithoutConditionalDelete: a store that lacks conditional deletes, or refuses
// each, is left clean.
func TestReleaseWithoutConditionalDelete(t *testing.T) {
	for name, wrap := range map[string]func(store.Store) store.Store{
		"lacks":   func(s store.Store) store.Store { return struct{ store.Store }{s} },
		"refuses": func(s store.Store) store.Store { return refusesDeletes{s} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				a := w.machine()
				a.tap.Store = wrap(w.mem)
				k, err := a.Exclusive(t.Context(), "prune")
				mustLock(t, k, err)
				if err := k.Release(t.Context()); err != nil {
					t.Error(err)
				}
				w.empty()
			})
		})
	}
}

// TestReleaseActsOnAFreshLook: a holder that was stopped between its look at lock.exclusive
// and the delete, for longer than its lease, deletes nothing.
func TestReleaseActsOnAFreshLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, lacking)
		a := w.machine()
		k, err := a.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		another := foreign(time.Now(), false)
		a.tap.After(func(_ context.Context, r tap.Request, err error) error {
			if r.Op == "get" && r.Key == pointer {
				a.clock.jump(2 * time.Minute)
				w.put(pointer, another)
			}
			return err
		})
		k.Release(t.Context())
		w.has(pointer, another)
	})
}

// has fails unless the key has the body.
func (w *world) has(key string, body []byte) {
	w.t.Helper()
	if raw, _, err := w.mem.Get(context.Background(), key, 1<<20); err != nil || !bytes.Equal(raw, body) {
		w.t.Errorf("%s has %.80q, %v", key, raw, err)
	}
}
