package replock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/tap"
	"github.com/repolock/repolock/store/mem"
)

// do runs f in a bubble with a good store.
func do(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, mem.Options{})) })
}

// first runs f at the first request of a kind.
func first(op, key string, f func(r tap.Request) error) func(context.Context, tap.Request) error {
	var done atomic.Bool
	return func(_ context.Context, r tap.Request) error {
		if r.Op == op && strings.Contains(r.Key, key) && done.CompareAndSwap(false, true) {
			return f(r)
		}
		return nil
	}
}

// A lease is dated from when its put was sent, not from its answer.
func TestLeaseIsDatedFromTheSend(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		do(t, func(t *testing.T, w *world) {
			a := w.machine()
			a.tap.After(func(_ context.Context, r tap.Request, err error) error {
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

// A caller who gives up in the last moment gets no lock, and nothing is left.
func TestCancelledInTheLastLook(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		do(t, func(t *testing.T, w *world) {
			a := w.machine()
			ctx, cancel := context.WithCancel(t.Context())
			a.tap.After(func(_ context.Context, r tap.Request, err error) error {
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

// Puts that got no answer are withdrawn as well.
func TestUnansweredPutsAreWithdrawn(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		do(t, func(t *testing.T, w *world) {
			a := w.machine()
			a.tap.After(func(_ context.Context, r tap.Request, err error) error {
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

// lock.exclusive goes first: the flag is the ground truth.
func TestReleaseOrder(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		var deleted []string
		a.tap.After(func(_ context.Context, r tap.Request, err error) error {
			if r.Op == "delete" {
				deleted = append(deleted, r.Key)
			}
			return err
		})
		key := k.Key()
		k.Release(t.Context())
		if want := []string{"index/lock.exclusive", key}; !slices.Equal(deleted, want) {
			t.Errorf("deleted %v, want %v", deleted, want)
		}
	})
}

// A claim of which one send got no answer, and that was refused then, withdraws
// nothing of whoever was faster.
func TestRefusedClaimLeavesOthersAlone(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a, b := w.machine(), w.machine()
		other, err := b.Exclusive(t.Context(), "prune")
		mustLock(t, other, err)
		a.tap.Before(first("put", "lock.exclusive", func(tap.Request) error { return errOutage }))
		k, err := a.Exclusive(t.Context(), "x")
		mustHeld(t, k, err)
		if len(w.keys()) != 2 {
			t.Errorf("left of the holder's: %v", w.keys())
		}
		other.Release(t.Context())
	})
}

// Whose lease is over deletes no lock.exclusive: it may be a successor's.
func TestLateWithdrawLeavesOthersAlone(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a, b := w.machine(), w.machine()
		var other *Lock
		var deleted bool
		var done atomic.Bool
		a.tap.After(func(_ context.Context, r tap.Request, err error) error {
			if r.Op == "list" && done.CompareAndSwap(false, true) {
				time.Sleep(7 * time.Second)
				a.clock.jump(2 * time.Minute) // stopped; b finds what is left expired
				w.mem.Delete(context.Background(), "index/lock.exclusive")
				for _, key := range w.keys() {
					w.mem.Delete(context.Background(), key)
				}
				other, _ = b.Exclusive(context.Background(), "prune")
			}
			return err
		})
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "delete" && strings.HasSuffix(r.Key, "lock.exclusive") {
				deleted = true
			}
			return nil
		})
		k, err := a.Exclusive(t.Context(), "x")
		mustHeld(t, k, err)
		if deleted || len(w.keys()) != 2 {
			t.Errorf("left of the successor's: %v", w.keys())
		}
		other.Release(t.Context())
	})
}

// A delete of lock.exclusive isn't waited for, nor repeated, beyond the lease.
func TestReleaseStopsAtTheDeadline(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		a.tap.Before(outage)
		time.Sleep(54 * time.Second)
		deadline := time.Now().Add(k.Deadline() - a.clock.Elapsed())
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "delete" && strings.HasSuffix(r.Key, "lock.exclusive") && time.Now().After(deadline) {
				t.Errorf("delete of lock.exclusive %v after the deadline", time.Since(deadline))
			}
			return errOutage
		})
		k.Release(t.Context())
	})
}

// lock.exclusive was seen by the last look.
func TestExclusiveIsSeenBeforeItIsHeld(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		a.tap.Before(first("list", "", func(tap.Request) error {
			return w.mem.Delete(context.Background(), "index/lock.exclusive")
		}))
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		if !slices.Contains(w.keys(), "index/lock.exclusive") {
			t.Error("held without lock.exclusive")
		}
		k.Release(t.Context())
	})
}

// A stale lock.exclusive is replaced only as it was seen.
func TestClaimReplacesWhatItSaw(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		w.put("index/lock.exclusive", foreign(time.Now(), false))
		time.Sleep(2 * time.Minute)
		looked := false
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			switch {
			case r.Op == "list":
				looked = true
			case r.Op == "put" && strings.HasSuffix(r.Key, "lock.exclusive") && looked:
				looked = false
				w.put("index/lock.exclusive", foreign(time.Now(), false)) // its holder is back
			}
			return nil
		})
		k, err := a.Exclusive(t.Context(), "x")
		held := mustHeld(t, k, err)
		if held.Holders[0].Holder != "laptop (pid 4711)" || !slices.Equal(w.keys(), []string{"index/lock.exclusive"}) {
			t.Errorf("%v %v", err, w.keys())
		}
	})
}

// What is left of an earlier try of the same acquire doesn't lock it out.
func TestOwnLeftovers(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		do(t, func(t *testing.T, w *world) {
			a := w.machine()
			var done, failed atomic.Bool
			a.tap.After(func(_ context.Context, r tap.Request, err error) error {
				if r.Op == "list" && done.CompareAndSwap(false, true) {
					a.clock.jump(2 * time.Minute)
				}
				return err
			})
			a.tap.Before(func(_ context.Context, r tap.Request) error {
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
