package replock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// These tests state one rule: an act that needs a look isn't done if the look fails. A look that fails shows nothing.

// TestBreakStaleNeedsItsSecondLook: break-lock --stale leaves a lock at which it couldn't look again, and reports that.
func TestBreakStaleNeedsItsSecondLook(t *testing.T) {
	holding(t, memory.Options{}, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
		a.lose(t, k)
		time.Sleep(time.Hour)
		m := w.machine()
		m.hooks.Before(fails("list", k.Key(), store.ErrPermission))
		broken, err := m.Break(t.Context(), BreakOptions{Stale: true})
		assert.That(t, len(broken) == 1 && errors.Is(broken[0].Err, store.ErrPermission), "%v", broken)
		assert.Says(t, err, store.ErrPermission, "still there")
		w.stores(k.Key())
		m.hooks.Before(nil)
		m.breaks(t, BreakOptions{Stale: true}, 1)
		w.empty()
	})
}

// TestBreakNeedsTheWholeListing: Break removes nothing if a page of the listing is missing.
func TestBreakNeedsTheWholeListing(t *testing.T) {
	bubble(t, memory.Options{PageSize: 1}, func(t *testing.T, w *world) {
		w.put("index/lock.shared/a", []byte("?"))
		w.put("index/lock.shared/b", []byte("?"))
		m := w.machine()
		lists := 0
		m.hooks.Before(when("list", "", func(context.Context, hookstore.Request) error {
			if lists++; lists > 1 {
				return store.ErrPermission
			}
			return nil
		}))
		broken, err := m.Break(t.Context(), BreakOptions{})
		assert.That(t, len(broken) == 0 && errors.Is(err, store.ErrPermission) && len(w.keys()) == 2, "%v, %v", broken, err)
	})
}

// TestBreakStaleNeedsTheStoresTime: without the store's time break-lock --stale removes nothing, and leaves no probe.
func TestBreakStaleNeedsTheStoresTime(t *testing.T) {
	for _, op := range []string{"put", "list"} {
		holding(t, memory.Options{NoTime: true}, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
			a.lose(t, k)
			time.Sleep(time.Hour)
			m := w.machine()
			m.hooks.Before(when(op, "", func(_ context.Context, r hookstore.Request) error {
				if op == "put" || strings.HasPrefix(r.Key, "index/lock.shared/") {
					return store.ErrPermission
				}
				return nil
			}))
			broken, err := m.Break(t.Context(), BreakOptions{Stale: true})
			assert.That(t, len(broken) == 0, "%v", broken)
			assert.Says(t, err, store.ErrPermission, "learning the store's time")
			w.stores(k.Key())
		})
	}
}

// TestStatusShowsWhatItCannotRead: a lock whose body can't be fetched is in the status, with the reason, however old it
// is. break-lock --stale leaves it alone.
func TestStatusShowsWhatItCannotRead(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.put("index/lock.shared/x", foreign(time.Now(), true))
		time.Sleep(time.Hour)
		m := w.machine()
		m.hooks.Before(fails("get", "", store.ErrPermission))
		infos, err := m.Status(t.Context())
		assert.That(t, err == nil && len(infos) == 1 && infos[0].Verdict == Unreadable && strings.Contains(infos[0].Why, store.ErrPermission.Error()),
			"%+v, %v", infos, err)
		m.breaks(t, BreakOptions{Stale: true}, 0)
	})
}

// TestProbeIsPutAgain: if another client deletes the probe of break-lock --stale, the next probe shows the store's time.
// After maxTries probes break-lock gives up, and removes nothing.
func TestProbeIsPutAgain(t *testing.T) {
	for _, deleted := range []int{1, maxTries} {
		holding(t, memory.Options{NoTime: true}, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
			a.lose(t, k)
			time.Sleep(time.Hour)
			m, probes := w.machine(), 0
			m.hooks.Before(when("list", "index/lock.shared/", func(_ context.Context, r hookstore.Request) error {
				if r.Key == k.Key() {
					return nil
				}
				if probes++; probes > maxTries {
					return store.ErrPermission
				}
				if probes <= deleted {
					w.delete(r.Key)
				}
				return nil
			}))
			if deleted < maxTries {
				m.breaks(t, BreakOptions{Stale: true}, 1)
				w.empty()
				return
			}
			broken, err := m.Break(t.Context(), BreakOptions{Stale: true})
			assert.That(t, len(broken) == 0, "%v", broken)
			assert.Says(t, err, errUnlisted, "learning the store's time")
			w.stores(k.Key())
		})
	}
}

// TestReleaseNeedsItsLook: a release whose look at lock.exclusive fails deletes only the flag, and reports that.
func TestReleaseNeedsItsLook(t *testing.T) {
	holding(t, lacking, Exclusive, func(t *testing.T, w *world, a *machine, k *Lock) {
		time.Sleep(5 * time.Second)
		another := foreign(time.Now(), false)
		w.put(pointer, another)
		a.hooks.Before(fails("get", pointer, store.ErrPermission))
		isAll(t, k.Release(t.Context()), store.ErrPermission)
		w.stores(pointer)
		w.has(pointer, another)
		w.delete(pointer)
	})
}

// TestReleaseOfALostLockNeedsItsLook: if the release of a lost lock can't look at its flag, or read it, it deletes
// nothing, because another process might continue with the flag. It reports why.
func TestReleaseOfALostLockNeedsItsLook(t *testing.T) {
	for _, op := range []string{"list", "get"} {
		bothHolders(t, memory.Options{}, func(t *testing.T, w *world, a *machine, k *Lock) {
			a.lose(t, k)
			stored := w.rewrites(k.Key())
			a.hooks.Before(fails(op, k.Key(), store.ErrPermission))
			isAll(t, k.Release(t.Context()), store.ErrPermission)
			w.keeps(map[string][]byte{k.Key(): stored})
		})
	}
}

// TestRefreshNeedsItsLook: a refresh whose look fails puts nothing, or it could restore a broken lock.
func TestRefreshNeedsItsLook(t *testing.T) {
	bothModes(t, lacking, func(t *testing.T, w *world, mode Mode) {
		a, k := w.holder(t, mode, func(o *Options) { o.Look = DefaultTTL })
		time.Sleep(3 * time.Second)
		a.hooks.Count()
		a.hooks.Before(fails("list", "", errOutage))
		assert.That(t, k.Refresh(t.Context()) != nil, "refreshed")
		a.sent(t, between{"put": {0, 0}})
		a.hooks.Before(nil)
		assert.OK(t, k.Refresh(t.Context()))
		w.leavesNothing(k)
	})
}

// TestClaimNeedsItsLook: an exclusive acquirer that can't look again at a stale lock.exclusive doesn't overwrite it.
func TestClaimNeedsItsLook(t *testing.T) {
	bubble(t, lacking, func(t *testing.T, w *world) {
		stale := foreign(time.Now(), false)
		w.put(pointer, stale)
		time.Sleep(time.Hour)
		m := w.machine()
		m.hooks.Before(fails("list", pointer, store.ErrPermission))
		m.fails(t, Exclusive, store.ErrPermission)
		w.stores(pointer)
		w.has(pointer, stale)
	})
}

// TestResumeNeedsItsLooks: a resume one of whose looks fails decides nothing: it tries again, and the lock isn't lost
// for good. Each request of the resume fails once, in turn.
func TestResumeNeedsItsLooks(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		for n := range 8 {
			a, k := w.holder(t, mode)
			a.outlives(t, k)
			requests, failed := 0, false
			a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if requests++; requests > n && !failed && (r.Op == "list" || r.Op == "get") {
					failed = true
					return store.ErrPermission // at once, without another send
				}
				return nil
			})
			mustResume(t, k)
			a.hooks.Before(nil)
			w.leavesNothing(k)
		}
	})
}

// TestFenceNeedsItsLook: a fence that can't be read isn't written. The error contains why.
func TestFenceNeedsItsLook(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m := w.machine()
		m.takes(t, Exclusive, WithFencingToken()).Release(t.Context())
		fence := w.keys()[0]
		before, _, err := w.mem.Get(t.Context(), fence, 1<<20)
		assert.OK(t, err)
		m.hooks.Before(fails("get", fence, store.ErrPermission))
		isAll(t, m.fails(t, Exclusive, ErrNoFencingToken, WithFencingToken()), store.ErrPermission)
		w.stores(fence)
		w.has(fence, before)
	})
}

// TestFirstPutNeedsItsLook: an acquirer that can't find out whether the repository exists puts nothing.
func TestFirstPutNeedsItsLook(t *testing.T) {
	bubble(t, memory.Options{PutCreates: true}, func(t *testing.T, w *world) {
		m := w.machine()
		m.hooks.Before(fails("list", "", store.ErrPermission))
		m.fails(t, Shared, store.ErrPermission)
		m.sent(t, between{"put": {0, 0}})
	})
}

// TestWaiterNeedsItsRead: a read of the blocker that fails isn't the blocker's end: the waiter reads it again.
func TestWaiterNeedsItsRead(t *testing.T) {
	holding(t, memory.Options{}, Shared, func(t *testing.T, w *world, _ *machine, k *Lock) {
		m := w.machine()
		m.hooks.Before(fails("get", k.Key(), store.ErrPermission))
		p := m.wants(t, Exclusive, 20*time.Second)
		time.Sleep(10 * time.Second)
		_, by := m.hooks.Count()
		assert.That(t, by["get"] > 2*by["list"], "sent %v: a look reads it once, too", by)
		<-p.done
		isAll(t, p.err, ErrHeld)
	})
}

// TestHangingReadDelaysNoPoll: a read of the blocker that hangs ends when the waiter's next poll is due.
func TestHangingReadDelaysNoPoll(t *testing.T) {
	holding(t, memory.Options{}, Shared, func(t *testing.T, w *world, _ *machine, k *Lock) {
		m := w.machine()
		p := m.wants(t, Exclusive, 25*time.Second)
		time.Sleep(3 * time.Second)
		m.hooks.Before(hangs("get", k.Key()))
		m.hooks.Count()
		time.Sleep(20 * time.Second)
		m.sent(t, between{"list": {4, many}})
		<-p.done
		isAll(t, p.err, ErrHeld)
	})
}
