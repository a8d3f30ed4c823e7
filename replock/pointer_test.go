package replock

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestRefusedAcquirerLeavesAnothersPointer: a refused acquirer doesn't delete another client's live
// lock.exclusive.
func TestRefusedAcquirerLeavesAnothersPointer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		c, a, b := w.originals(), w.machine(), w.ours()
		came, gate := c.pause("put", "lock.exclusive")
		var x held
		cdone := make(chan struct{})
		go func() { defer close(cdone); x, _ = c.lock(context.Background(), Exclusive) }()
		<-came // it has looked
		looked := make(chan struct{})
		var first atomic.Bool
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "list" && first.CompareAndSwap(false, true) {
				close(gate) // it writes, and verifies
				<-cdone
				close(looked)
			}
			return nil
		})
		k, err := a.Exclusive(t.Context(), "prune")
		mustHeld(t, k, err)
		<-looked
		if x == nil {
			t.Fatal("the other client isn't in")
		}
		if keys := w.keys(); len(keys) != 1 {
			t.Errorf("a refused acquirer left %v of the other's lock.exclusive", keys)
		}
		s, _ := b.lock(t.Context(), Shared)
		if both(x, s) {
			t.Error("both in")
		}
		end(x, s)
	})
}

// TestStoppedReaperHarmsNoLaterHolder: an acquirer that was stopped after it had read a stale
// lock.exclusive leaves that of a later holder alone.
func TestStoppedReaperHarmsNoLaterHolder(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		for name, opts := range map[string]mem.Options{"kept": {}, "lacked": lacking} {
			t.Run(name+mode.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, opts)
					dead, a, b := w.machine(), w.machine(), w.machine()
					w.put("index/lock.exclusive", foreign(time.Now().Add(-time.Hour), false))
					time.Sleep(5 * time.Minute)
					_ = dead
					var first atomic.Bool
					var other *Lock
					var err error
					a.hooks.After(func(_ context.Context, r hookstore.Request, rerr error) error {
						// Stopped for two minutes after the body was read; another client
						// comes in.
						if r.Op == "get" && first.CompareAndSwap(false, true) {
							a.clock.jump(2 * time.Minute)
							w.skew.Add(int64(2 * time.Minute))
							b.clock.jump(2 * time.Minute)
							b.clock.setSkew(2 * time.Minute)
							other, err = b.Exclusive(context.Background(), "prune")
							if err != nil {
								t.Error(err)
							}
						}
						return rerr
					})
					k, aerr := a.acquire(t.Context(), mode, "x")
					t.Logf("%v %v", k != nil, aerr)
					if other != nil {
						time.Sleep(time.Minute)
						if !alive(other) {
							t.Errorf("harmed: %v", other.Lost())
						}
						other.Release(t.Context())
					}
				})
			})
		}
	}
}

// TestRefusedClaimPausesBetweenPuts: a claim pauses between its puts if If-None-Match is refused and
// LIST shows nothing.
func TestRefusedClaimPausesBetweenPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		var n int
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			time.Sleep(5 * time.Millisecond)
			if r.Op == "put" && r.Opts.IfAbsent {
				n++
				return store.ErrPrecondition
			}
			return nil
		})
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		if n > 100 {
			t.Errorf("%d puts of lock.exclusive, without a pause", n)
		}
		a.hooks.Before(nil)
		mustRelease(t, k)
	})
}

// TestOnlyExclusiveAcquirersTouchLockExclusive: a shared acquirer passes a stale one and
// leaves it as it is. A client of the original protocol can have put a live one there since
// it was read.
func TestOnlyExclusiveAcquirersTouchLockExclusive(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		const key = "index/lock.exclusive"
		w.put(key, foreign(time.Now(), false))
		time.Sleep(2 * time.Minute)
		a := w.machine()
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Key == key && r.Op != "get" {
				t.Errorf("%s of %s", r.Op, r.Key)
			}
			return nil
		})
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		time.Sleep(5 * time.Minute)
		if !alive(k) {
			t.Errorf("lost: %v", k.Lost())
		}
		k.Release(t.Context())
		if !slices.Contains(w.keys(), key) {
			t.Errorf("%s is gone", key)
		}
	})
}

// TestStaleExclusiveIsOverwritten: an exclusive acquirer overwrites a stale lock.exclusive and
// never deletes it, because a late delete would remove its own, or a successor's.
func TestStaleExclusiveIsOverwritten(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		w.put("index/lock.exclusive", foreign(time.Now(), false))
		time.Sleep(3 * time.Minute)
		a := w.machine()
		deleted := 0
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "delete" && strings.HasSuffix(r.Key, "lock.exclusive") {
				deleted++
			}
			return nil
		})
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		if deleted != 0 {
			t.Errorf("%d deletes of lock.exclusive", deleted)
		}
		a.hooks.Before(nil)
		k.Release(t.Context())
	})
}

// TestRefusedClaimLeavesOthersAlone: a claim that was sent twice, without an answer and then
// refused, withdraws no object of a faster acquirer.
func TestRefusedClaimLeavesOthersAlone(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a, b := w.machine(), w.machine()
		other, err := b.Exclusive(t.Context(), "prune")
		mustLock(t, other, err)
		a.hooks.Before(first("put", "lock.exclusive", func(hookstore.Request) error { return errOutage }))
		k, err := a.Exclusive(t.Context(), "x")
		mustHeld(t, k, err)
		if len(w.keys()) != 2 {
			t.Errorf("left of the holder's: %v", w.keys())
		}
		other.Release(t.Context())
	})
}

// TestLateWithdrawLeavesOthersAlone: an acquirer deletes no lock.exclusive after its lease: it
// can be a successor's.
func TestLateWithdrawLeavesOthersAlone(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a, b := w.machine(), w.machine()
		var other *Lock
		var deleted bool
		var done atomic.Bool
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "list" && done.CompareAndSwap(false, true) {
				time.Sleep(7 * time.Second)
				a.clock.jump(2 * time.Minute) // stopped; b finds its objects expired
				w.mem.Delete(context.Background(), "index/lock.exclusive")
				for _, key := range w.keys() {
					w.mem.Delete(context.Background(), key)
				}
				other, _ = b.Exclusive(context.Background(), "prune")
			}
			return err
		})
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
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

// TestExclusiveIsSeenBeforeItIsHeld: the last look has seen lock.exclusive before the lock is
// held.
func TestExclusiveIsSeenBeforeItIsHeld(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		a.hooks.Before(first("list", "", func(hookstore.Request) error {
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

// TestClaimReplacesWhatItSaw: a stale lock.exclusive is replaced only in the version that was
// seen.
func TestClaimReplacesWhatItSaw(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		w.put("index/lock.exclusive", foreign(time.Now(), false))
		time.Sleep(2 * time.Minute)
		looked := false
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
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
