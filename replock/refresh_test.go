package replock

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
)

// TestRefreshStoppedAfterItsLookPutsNothingBack: a machine that was suspended between the look of a
// refresh and its put doesn't put a broken lock back, on a store that ignores If-Match.
func TestRefreshStoppedAfterItsLookPutsNothingBack(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, lacking)
			a, b := w.machine(), w.machine()
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			var broken atomic.Bool
			a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if r.Op == "list" && r.Key == "index/lock.exclusive" {
					time.Sleep(time.Millisecond) // looked at after the flag, not at the same time
				}
				return nil
			})
			a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
				if r.Op == "list" && r.Key == k.Key() && broken.CompareAndSwap(false, true) {
					a.clock.jump(15 * time.Second)
					if _, err := b.Break(t.Context(), BreakOptions{}); err != nil {
						t.Error(err)
					}
				}
				return err
			})
			time.Sleep(DefaultTTL)
			if !broken.Load() || alive(k) {
				t.Errorf("%v: broken %t, alive %t", mode, broken.Load(), alive(k))
			}
			w.empty()
			k.Release(t.Context())
		})
	}
}

// TestRefreshIsDatedFromTheSend: a refresh renews the lease from its send, an exclusive one from
// the earlier of both sends.
func TestRefreshIsDatedFromTheSend(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		start := a.clock.Elapsed()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		var mu sync.Mutex
		sent := map[string]time.Duration{} // the last put of each object
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			mu.Lock()
			defer mu.Unlock()
			if r.Op == "put" && (r.Key == k.Key() || r.Key == "index/lock.exclusive") {
				sent[r.Key] = a.clock.Elapsed()
			}
			return nil
		})
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "put" {
				time.Sleep(3 * time.Second)
			}
			return err
		})
		time.Sleep(40 * time.Second)
		mu.Lock()
		earlier := slices.Min(slices.Collect(maps.Values(sent)))
		if d := k.Deadline(); len(sent) != int(mode) || d != earlier+55*time.Second || d < start+85*time.Second {
			t.Errorf("the deadline is %v after the start, the puts were sent at %v", d-start, sent)
		}
		mu.Unlock()
		k.Release(t.Context())
	})
}

// TestExclusiveIsRenewedWhole: an exclusive lock isn't renewed if one of its objects isn't.
func TestExclusiveIsRenewedWhole(t *testing.T) {
	for _, key := range []string{"lock.intent", "lock.exclusive"} {
		for _, applied := range []bool{false, true} {
			eachMode(t, func(t *testing.T, w *world, mode Mode) {
				if mode == Shared {
					return
				}
				a := w.machine()
				start := time.Now()
				k, err := a.acquire(t.Context(), mode, "x")
				mustLock(t, k, err)
				fail := func(r hookstore.Request) bool { return r.Op == "put" && strings.Contains(r.Key, key) }
				if applied {
					// The answers of the put, and of requests that could show its result, are
					// lost.
					a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
						if strings.Contains(r.Key, key) {
							return errOutage
						}
						return err
					})
				} else {
					a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
						if fail(r) {
							return errOutage
						}
						return nil
					})
				}
				<-k.Context().Done()
				if d := time.Since(start); d != 55*time.Second {
					t.Errorf("%s not renewed: lost after %v", key, d)
				}
				a.hooks.Before(nil)
				a.hooks.After(nil)
				k.Release(t.Context())
			})
		}
	}
}

// TestLostAnswerIsDatedFromItsSend: if the next attempt finds that a refresh without an answer
// was applied, that refresh renews the lease from its own send.
func TestLostAnswerIsDatedFromItsSend(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		start := time.Now()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		// Only the puts at 30 s are applied, and none is answered.
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" && time.Since(start) > 30*time.Second {
				return errOutage
			}
			return nil
		})
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "put" {
				return errOutage
			}
			return err
		})
		<-k.Context().Done()
		if d := time.Since(start); d != 85*time.Second && d != 55*time.Second {
			t.Errorf("lost after %v, want 55 s after a send", d)
		}
		a.hooks.Before(nil)
		a.hooks.After(nil)
		k.Release(t.Context())
	})
}

// TestRefreshPutsNoBrokenLockBack: a lock that is broken between two puts of one refresh isn't
// put back.
func TestRefreshPutsNoBrokenLockBack(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k, err := a.Shared(t.Context(), "x")
		mustLock(t, k, err)
		var lost, gone atomic.Bool
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			switch {
			case r.Op == "put" && lost.CompareAndSwap(false, true):
				return errOutage // applied: the next one finds another ETag
			case r.Op == "get" && gone.CompareAndSwap(false, true):
				w.mem.Delete(context.Background(), k.Key())
			}
			return err
		})
		time.Sleep(45 * time.Second)
		for _, key := range w.keys() {
			t.Errorf("put back: %s", key)
		}
		<-k.Context().Done()
		k.Release(t.Context())
	})
}
