package replock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestListingOutweighsA404: a lock that LIST shows is held, although GET answers 404.
func TestListingOutweighsA404(t *testing.T) {
	for _, first := range []Mode{Shared, Exclusive} {
		for _, second := range []Mode{Shared, Exclusive} {
			if first == Shared && second == Shared {
				continue
			}
			t.Run(first.String()+second.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, mem.Options{})
					a, b := w.machine(), w.machine()
					k, err := a.acquire(t.Context(), first, "x")
					mustLock(t, k, err)
					time.Sleep(time.Second)
					b.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
						if r.Op == "get" {
							return store.ErrNotFound
						}
						return err
					})
					other, err := b.acquire(t.Context(), second, "y")
					if other != nil && alive(k) {
						t.Error("both in: a GET that says 404 outweighs the LIST")
						other.Release(t.Context())
					} else {
						t.Log(err)
					}
					k.Release(t.Context())
				})
			})
		}
	}
}

// TestEmptyAnswerIsNoRelease: an empty answer to a GET doesn't count as a released lock if LIST gave
// a size.
func TestEmptyAnswerIsNoRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a, b := w.machine(), w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		b.Locker.store = emptyGets{b.hooks}
		other, _ := b.Shared(t.Context(), "y")
		if other != nil && alive(k) {
			t.Error("both in: an empty answer counts as a released lock, though LIST gave a size")
			other.Release(t.Context())
		}
		k.Release(t.Context())
	})
}

type emptyGets struct{ store.Store }

func (s emptyGets) Get(ctx context.Context, key string, n int64) ([]byte, store.Object, error) {
	_, o, err := s.Store.Get(ctx, key, n)
	return nil, o, err
}

// TestSightNoticesChanges: a change of the ETag, the mod time or the size is noticed.
func TestSightNoticesChanges(t *testing.T) {
	now := time.Now()
	for _, o := range []store.Object{
		{Key: "k", ETag: "2", ModTime: now, Size: 1}, {Key: "k", ETag: "1", ModTime: now.Add(1), Size: 1}, {Key: "k", ETag: "1", ModTime: now, Size: 2},
	} {
		s := memory{}
		s.see(store.Object{Key: "k", ETag: "1", ModTime: now, Size: 1}, kindShared, time.Second)
		if e := s.see(o, kindShared, 2*time.Second); e.since != 2*time.Second {
			t.Errorf("%+v: seen since %v", o, e.since)
		}
		if e := s.see(o, kindShared, 3*time.Second); e.since != 2*time.Second {
			t.Errorf("%+v: unchanged, and seen since %v", o, e.since)
		}
	}
}

// TestUnreadLockIsNeverPassed: a lock whose body can't be fetched counts as held while it is
// too young to be stale, and then as a failure of the store. It is never passed.
func TestUnreadLockIsNeverPassed(t *testing.T) {
	for age, held := range map[time.Duration]bool{50 * time.Second: true, 61 * time.Second: false, time.Hour: false} {
		do(t, func(t *testing.T, w *world) {
			w.put("index/lock.shared/x", foreign(time.Now(), true))
			time.Sleep(age)
			a := w.machine()
			a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if r.Op == "get" {
					return errOutage
				}
				return nil
			})
			k, err := a.Exclusive(t.Context(), "x")
			if k != nil || errors.Is(err, ErrHeld) != held || errors.Is(err, errOutage) == held {
				t.Errorf("%v old: %v", age, err)
			}
		})
	}
}

// TestUnreadableConflictIsNotPassed: a conflicting lock isn't passed if the client has no
// right to read its body.
func TestUnreadableConflictIsNotPassed(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.put("index/lock.shared/x", foreign(time.Now(), true))
		for _, age := range []time.Duration{0, time.Hour} {
			time.Sleep(age)
			a := w.machine()
			a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if r.Op == "get" {
					return store.ErrPermission
				}
				return nil
			})
			if k, err := a.Exclusive(t.Context(), "x"); k != nil || err == nil {
				t.Error("passed a lock that it has no right to read")
			}
		}
	})
}
