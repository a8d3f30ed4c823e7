package replock

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
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
		for rights, refuse := range map[string]hookstore.Before{"may delete": nil, "may not delete": mayNotDelete} {
			t.Run(name+", "+rights, func(t *testing.T) {
				do(t, func(t *testing.T, w *world) {
					a := w.machine()
					k, err := a.Exclusive(t.Context(), "prune")
					mustLock(t, k, err)
					a.hooks.Before(refuse)
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
		a.hooks.Before(first("list", "", func(hookstore.Request) error {
			w.put(pointer, another)
			return nil
		}))
		k, err := a.Exclusive(t.Context(), "prune")
		mustHeld(t, k, err)
		w.has(pointer, another)
	})
}

// TestReleaseDeletesWhatItSaw: if the store keeps conditions, a release neither deletes nor
// empties a body that comes after its look, or, if it needs no look, after its last refresh.
func TestReleaseDeletesWhatItSaw(t *testing.T) {
	for name, opts := range map[string]mem.Options{"kept": {}, "proven": {IfAbsent: mem.Claimed, IfMatch: mem.Claimed}} {
		for rights, refuse := range map[string]hookstore.Before{"may delete": nil, "may not delete": mayNotDelete} {
			for _, checked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, checked %v", name, rights, checked), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t, opts)
						a := w.machine()
						k, err := a.Exclusive(t.Context(), "prune")
						mustLock(t, k, err)
						time.Sleep(40 * time.Second) // the first refresh has proven If-Match
						if !a.conditions.match.holds() {
							t.Fatal("If-Match isn't relied on")
						}
						if checked && k.Check(t.Context()) != nil {
							t.Error("not held")
						}
						another := foreign(time.Now(), false)
						var came atomic.Bool
						a.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
							if (r.Op == "delete" || r.Op == "put") && r.Key == pointer && came.CompareAndSwap(false, true) {
								w.put(pointer, another)
							}
							if refuse != nil {
								return refuse(ctx, r)
							}
							return nil
						})
						if err := k.Release(t.Context()); err != nil || !came.Load() {
							t.Errorf("%v, and another came: %v", err, came.Load())
						}
						w.has(pointer, another)
					})
				})
			}
		}
	}
}

// refusesDeletes claims conditional deletes, and refuses each as unmet.
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
				a.hooks.Store = wrap(w.mem)
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
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
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

// TestLatePointerIsTakenDown: a put of lock.exclusive that is applied after another put of it
// was answered, and deleted, leaves nothing, whether the lock is granted or refused.
func TestLatePointerIsTakenDown(t *testing.T) {
	for _, granted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{})
			a, b := w.machine(), w.machine()
			s, err := b.Shared(t.Context(), "backup")
			mustLock(t, s, err)
			puts := 0
			var late []byte
			a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if r.Op == "put" && r.Key == pointer {
					if puts++; puts == 1 {
						late = r.Body
						return errOutage
					}
				}
				return nil
			})
			a.hooks.After(func(ctx context.Context, r hookstore.Request, err error) error {
				if r.Op == "delete" && r.Key == pointer && late != nil {
					if _, err := w.mem.Put(ctx, r.Key, late, store.PutOptions{IfAbsent: true}); err != nil {
						t.Error(err)
					}
					late = nil
					if granted {
						s.Release(ctx)
					}
				}
				return err
			})
			k, err := a.Exclusive(t.Context(), "prune")
			if granted {
				mustLock(t, k, err).Release(t.Context())
			} else {
				mustHeld(t, k, err)
			}
			for _, key := range w.keys() {
				if !strings.Contains(key, "/lock.shared/") {
					t.Errorf("granted %t: left: %s", granted, key)
				}
			}
			s.Release(t.Context())
			w.empty()
		})
	}
}

// ignoresDeleteCondition keeps the conditions of puts, and claims that of deletions.
type ignoresDeleteCondition struct{ *mem.Store }

func (s ignoresDeleteCondition) Properties() store.Properties {
	p := s.Store.Properties()
	p.DeleteIfMatch = store.Claimed
	return p
}

func (s ignoresDeleteCondition) DeleteIfMatch(ctx context.Context, key, _ string) error {
	return s.Delete(ctx, key)
}

// TestClaimedDeleteNeedsALook: a release that doesn't know whether the server heeds the condition
// of a deletion looks first, and leaves another's lock.exclusive alone.
func TestClaimedDeleteNeedsALook(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		s := ignoresDeleteCondition{w.mem}
		l, err := New(s, a.opts)
		if err != nil {
			t.Fatal(err)
		}
		k, err := l.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		time.Sleep(10 * time.Second)
		another := foreign(time.Now(), false)
		w.put(pointer, another)
		if err := k.Release(t.Context()); err != nil {
			t.Error(err)
		}
		w.has(pointer, another)
	})
}
