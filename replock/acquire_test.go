package replock

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestHeldErrorCountsNoPassedLocks: HeldError.More counts holders, not stale locks that were passed.
func TestHeldErrorCountsNoPassedLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		w.flags(500)
		time.Sleep(5 * time.Minute)
		k, err := w.machine().Shared(t.Context(), "backup")
		mustLock(t, k, err)
		time.Sleep(5 * time.Second)
		x, err := w.machine().Exclusive(t.Context(), "prune")
		held := mustHeld(t, x, err)
		if held.More > 0 {
			t.Errorf("one holder, and: %v", err)
		}
		k.Release(t.Context())
	})
}

// TestOwnFlagMustBeListed: a lock isn't granted if the listing lacks its own flag.
func TestOwnFlagMustBeListed(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{})
			a := w.machine()
			a.hooks.After(func(ctx context.Context, r hookstore.Request, err error) error {
				if r.Op == "put" && !strings.Contains(r.Key, "lock.exclusive") {
					w.mem.Delete(ctx, r.Key)
				}
				return err
			})
			k, err := a.acquire(t.Context(), mode, "x")
			if err == nil {
				t.Errorf("%s: acquired, and the flag isn't in the listing: %v", mode, w.keys())
				k.Release(t.Context())
			}
		})
	}
}

// TestStaleLockIsPassedOnlyOnceDeleted: an acquirer that can't delete a stale lock doesn't pass it.
func TestStaleLockIsPassedOnlyOnceDeleted(t *testing.T) {
	for key, mode := range map[string]Mode{"index/lock.shared/x": Exclusive, "index/lock.intent/x": Shared} {
		do(t, func(t *testing.T, w *world) {
			w.put(key, foreign(time.Now(), strings.Contains(key, "shared")))
			time.Sleep(2 * time.Minute)
			a := w.machine()
			a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if r.Key == key && (r.Op == "delete" || r.Op == "put") {
					return store.ErrPermission
				}
				return nil
			})
			k, err := a.acquire(t.Context(), mode, "x")
			if k != nil || !errors.Is(err, store.ErrPermission) || !strings.Contains(err.Error(), key) {
				t.Errorf("%s: passed, or: %v", key, err)
			}
			a.hooks.Before(nil)
			k, err = a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			for _, left := range w.keys() {
				if left == key && mode == Shared {
					t.Errorf("passed %s and left it", key)
				}
			}
			k.Release(t.Context())
		})
	}
}

// TestNoLockWithoutRandomness: a failing source of randomness is an error, not a lock with a
// guessable name.
func TestNoLockWithoutRandomness(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine(func(o *Options) { o.Rand = io.LimitReader(nil, 0) })
		if k, err := a.Shared(t.Context(), "x"); k != nil || err == nil {
			t.Error("a lock without an id")
		}
	})
}

// TestLeaseOutlastsTheReaping: an acquirer that was stopped for longer than the lease, between
// its look and the grant, doesn't hold the lock by that lease.
func TestLeaseOutlastsTheReaping(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.put("index/lock.shared/x", foreign(time.Now(), true))
		time.Sleep(3 * time.Minute)
		a := w.machine()
		var done atomic.Bool
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "delete" && done.CompareAndSwap(false, true) {
				a.clock.jump(2 * time.Minute)
			}
			return err
		})
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		if left := k.Deadline() - a.clock.Elapsed(); left <= 0 {
			t.Errorf("acquired with a lease that ended %v ago", -left)
		}
		k.Release(t.Context())
	})
}

// TestLeaseIsDatedFromTheSend: a lease is dated from when its put was sent, not from its answer.
func TestLeaseIsDatedFromTheSend(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		do(t, func(t *testing.T, w *world) {
			a := w.machine()
			a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
				if r.Op == "put" {
					time.Sleep(7 * time.Second)
				}
				return err
			})
			start := a.clock.Elapsed()
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			if d := k.Deadline() - start; d != 55*time.Second {
				t.Errorf("%s: the deadline is %v after the first send", mode, d)
			}
			k.Release(t.Context())
		})
	}
}

// TestCancelledAcquireLeavesNothing: a caller that cancels in the last moment gets no lock,
// and nothing is left.
func TestCancelledAcquireLeavesNothing(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		do(t, func(t *testing.T, w *world) {
			a := w.machine()
			ctx, cancel := context.WithCancel(t.Context())
			a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
				if r.Op == "list" {
					cancel()
				}
				return err
			})
			k, err := a.acquire(ctx, mode, "x")
			if k != nil || !errors.Is(err, context.Canceled) {
				t.Fatalf("%v %v", k, err)
			}
			w.empty()
		})
	}
}

// TestUnansweredPutsAreWithdrawn: an acquirer withdraws puts that got no answer as well.
func TestUnansweredPutsAreWithdrawn(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		do(t, func(t *testing.T, w *world) {
			a := w.machine()
			a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
				if r.Op == "put" {
					return errOutage
				}
				return err
			})
			if k, err := a.acquire(t.Context(), mode, "x"); k != nil || !errors.Is(err, errOutage) {
				t.Fatal(err)
			}
			w.empty()
		})
	}
}

// TestOwnLeftoversDoNotConflict: the objects of an earlier try don't lock a later try of the same
// acquire out.
func TestOwnLeftoversDoNotConflict(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		do(t, func(t *testing.T, w *world) {
			a := w.machine()
			var done, failed atomic.Bool
			a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
				if r.Op == "list" && done.CompareAndSwap(false, true) {
					a.clock.jump(2 * time.Minute)
				}
				return err
			})
			a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if r.Op == "delete" && !failed.Load() {
					return errOutage
				}
				if r.Op == "put" && done.Load() {
					failed.Store(true)
				}
				return nil
			})
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			time.Sleep(2 * time.Minute)
			if !alive(k) {
				t.Error(k.Lost())
			}
			k.Release(t.Context())
		})
	}
}

func TestWhichModesConflict(t *testing.T) {
	for _, c := range []struct {
		first, second Mode
		together      bool
	}{
		{Shared, Shared, true},
		{Shared, Exclusive, false},
		{Exclusive, Shared, false},
		{Exclusive, Exclusive, false},
	} {
		t.Run(c.first.String()+" then "+c.second.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				ctx := t.Context()
				a, b := w.machine(), w.machine()
				first, err := a.acquire(ctx, c.first, "one")
				mustLock(t, first, err)
				second, err := b.acquire(ctx, c.second, "two")
				if c.together {
					mustLock(t, second, err)
				} else {
					held := mustHeld(t, second, err)
					if len(held.Holders) != 1 || held.Holders[0].Operation != "one" || !strings.Contains(err.Error(), "m1 (pid 101)") {
						t.Errorf("the error doesn't name the holder: %v", err)
					}
					if !errors.Is(err, ErrHeld) || errors.Is(err, ErrLost) {
						t.Errorf("errors.Is: %v", err)
					}
				}
				if err := first.Release(ctx); err != nil {
					t.Fatal(err)
				}
				if second == nil {
					second, err = b.acquire(ctx, c.second, "two")
					mustLock(t, second, err)
				}
				if err := second.Release(ctx); err != nil {
					t.Fatal(err)
				}
				w.empty()
			})
		})
	}
}

func TestEachNameIsItsOwnLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		for _, name := range []string{"", "a", "b"} {
			k, err := w.machine(func(o *Options) { o.Name = name }).Exclusive(t.Context(), "prune")
			mustLock(t, k, err)
			defer k.Release(t.Context())
		}
		k, err := w.machine(func(o *Options) { o.Name = "a" }).Shared(t.Context(), "backup")
		mustHeld(t, k, err)
	})
}
