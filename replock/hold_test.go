package replock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

var errOutage = errors.New("503 service unavailable")

func takesASecond(context.Context, hookstore.Request) error {
	time.Sleep(time.Second)
	return nil
}

func outage(context.Context, hookstore.Request) error { return errOutage }

func mayNotDelete(_ context.Context, r hookstore.Request) error {
	if strings.HasPrefix(r.Op, "delete") {
		return &store.Error{Op: "delete", Key: r.Key, Err: store.ErrPermission}
	}
	return nil
}

// eachMode runs a test with both modes, on a store with conditional puts and on
// one without.
func eachMode(t *testing.T, f func(t *testing.T, w *world, mode Mode)) {
	for name, opts := range map[string]mem.Options{
		"kept": {}, "lacked": lacking, "ignored": {IfAbsent: mem.Ignored, IfMatch: mem.Ignored},
		"claimed":   {IfAbsent: mem.Claimed, IfMatch: mem.Claimed},
		"second":    {Precision: time.Second, NoTime: true},
		"clockless": {NoStoreClock: true},
	} {
		for _, mode := range []Mode{Shared, Exclusive} {
			t.Run(name+" "+mode.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, opts), mode) })
			})
		}
	}
}

func TestHeldForAnHour(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k, err := a.acquire(t.Context(), mode, "long")
		mustLock(t, k, err)
		for range 60 {
			time.Sleep(61 * time.Second)
			other, err := b.Exclusive(t.Context(), "prune")
			mustHeld(t, other, err)
			if !alive(k) {
				t.Fatalf("lost: %v", k.Lost())
			}
		}
		if n := a.saw(EventRefreshed); n < 120 || n > 123 {
			t.Errorf("refreshed %d times in 61 minutes, want one each 30 s", n)
		}
		k.Release(t.Context())
		w.empty()
	})
}

// TestLostAtDeadline: without an answer the lock is lost 55 s after its last refresh was sent,
// after three failures, and no other holder gets in before.
func TestLostAtDeadline(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		start := time.Now()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		a.hooks.Before(outage)
		var lostAt time.Duration
		go func() {
			<-k.Context().Done()
			lostAt = time.Since(start)
		}()
		for {
			other, err := b.Exclusive(t.Context(), "prune")
			if err == nil {
				if alive(k) {
					t.Fatal("another got in while the lock was held")
				}
				other.Release(t.Context())
				break
			}
			mustHeld(t, other, err)
			time.Sleep(500 * time.Millisecond)
		}
		in := time.Since(start)
		if lostAt != 55*time.Second {
			t.Errorf("lost after %v, want 55s", lostAt)
		}
		if w.clockless {
			in -= DefaultTTL // it had to watch
		}
		if in < 60*time.Second || in > 65*time.Second {
			t.Errorf("another got in after %v, want ttl to ttl + 5 s", in)
		}
		if n := a.saw(EventRefreshFailed); n != 3 || a.saw(EventGaveUp) != 1 {
			t.Errorf("%d failures, gave up %d times; want 3 and 1", n, a.saw(EventGaveUp))
		}
		var lost *LostError
		if !errors.As(context.Cause(k.Context()), &lost) || lost.Definite || !errors.Is(lost, errOutage) {
			t.Errorf("cause: %v", context.Cause(k.Context()))
		}
		if err := k.Renew(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("check: %v", err)
		}
	})
}

// TestFailuresThenRecovery: one or two failures don't lose the lock, and the next success
// resets their count.
func TestFailuresThenRecovery(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		for range 5 {
			synctest.Wait()
			refreshed := a.saw(EventRefreshed)
			a.hooks.Before(outage)
			time.Sleep(40 * time.Second) // the attempts at 30 s and 38 s
			a.hooks.Before(nil)
			time.Sleep(8 * time.Second) // the one at 46 s
			if !alive(k) || a.saw(EventRefreshed) != refreshed+1 {
				t.Fatalf("lost %v, refreshed %d", k.Lost(), a.saw(EventRefreshed)-refreshed)
			}
			// Come back to the moment of a refresh.
			time.Sleep(28*time.Second + time.Millisecond)
		}
		k.Release(t.Context())
	})
}

// TestHangingRequests: the lock's context ends even if the store answers nothing and ignores
// contexts.
func TestHangingRequests(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		start := time.Now()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		a.hooks.Before(func(context.Context, hookstore.Request) error {
			time.Sleep(time.Hour)
			return errOutage
		})
		<-k.Context().Done()
		if d := time.Since(start); d != 55*time.Second {
			t.Errorf("lost after %v, want 55s", d)
		}
		a.hooks.Before(nil)
		k.Release(t.Context())
		time.Sleep(2 * time.Hour) // for the hanging ones to end
	})
}

// TestAnswerAfterDeadline: a refresh whose answer comes after the deadline doesn't renew the
// lock.
func TestAnswerAfterDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		start := time.Now()
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		a.hooks.After(func(context.Context, hookstore.Request, error) error {
			time.Sleep(26 * time.Second) // from 30 s to 56 s
			return nil
		})
		<-k.Context().Done()
		if d := time.Since(start); d != 55*time.Second {
			t.Errorf("lost after %v, want 55s", d)
		}
		a.hooks.After(nil)
		k.Release(t.Context())
		time.Sleep(time.Minute)
	})
}

// TestBroken: a holder whose flag is deleted, emptied or replaced loses its lock for good at
// the next refresh. For an exclusive lock, so does one whose lock.exclusive is.
func TestBroken(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for _, what := range []string{"flag", "exclusive"} {
			for _, how := range []string{"deleted", "emptied", "replaced", "garbage"} {
				if what == "exclusive" && mode == Shared {
					continue
				}
				a := w.machine()
				k, err := a.acquire(t.Context(), mode, "x")
				mustLock(t, k, err)
				key := k.Key()
				if what == "exclusive" {
					key = "index/lock.exclusive"
				}
				switch how {
				case "deleted":
					err = w.mem.Delete(t.Context(), key)
				case "emptied":
					w.put(key, nil)
				case "replaced":
					w.put(key, []byte(`{"operation":"prune","holder":"h (pid 1)","acquired_at":"2026-01-01T00:00:00Z","expires_at":"2026-01-01T00:01:00Z"}`))
				case "garbage":
					w.put(key, []byte("garbage"))
				}
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				<-k.Context().Done()
				if d := time.Since(start); d > 30*time.Second {
					t.Errorf("%s %s: noticed after %v, want the next refresh", what, how, d)
				}
				lost := k.Lost()
				if lost == nil || !lost.Definite || lost.Key != key {
					t.Errorf("%s %s: %v", what, how, lost)
				}
				if r, err := k.Resume(t.Context()); r != nil || !errors.Is(err, ErrLost) {
					t.Errorf("%s %s: resumed, %v", what, how, err)
				}
				k.Release(t.Context())
				w.mem.Delete(t.Context(), "index/lock.exclusive")
			}
		}
		w.empty()
	})
}

// TestLostAnswers: the id in the body shows that a refresh without an answer was applied, and
// that the lock isn't broken.
func TestLostAnswers(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		var puts atomic.Int64
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "put" && puts.Add(1)%2 == 1 && err == nil {
				return errOutage
			}
			return err
		})
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		time.Sleep(10 * time.Minute)
		if !alive(k) {
			t.Fatalf("lost: %v", k.Lost())
		}
		k.Release(t.Context())
		w.empty()
	})
}

func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		k, err := a.Shared(t.Context(), "x")
		mustLock(t, k, err)
		time.Sleep(20 * time.Second)
		before := k.Deadline()
		if err := k.Renew(t.Context()); err != nil || k.Deadline() != before+20*time.Second {
			t.Errorf("check: %v, deadline %v later", err, k.Deadline()-before)
		}
		a.hooks.Before(outage)
		for range 10 {
			if err := k.Renew(t.Context()); !errors.Is(err, errOutage) {
				t.Errorf("check in an outage: %v", err)
			}
		}
		a.hooks.Before(nil)
		if !alive(k) || a.saw(EventGaveUp) > 0 {
			t.Error("failed checks count as failed refreshes")
		}
		w.mem.Delete(t.Context(), k.Key())
		if err := k.Renew(t.Context()); !errors.Is(err, ErrLost) || alive(k) {
			t.Errorf("check of a broken lock: %v", err)
		}
		k.Release(t.Context())
	})
}

// TestCheck: Check detects a change of any of a lock's objects, writes nothing, and returns an
// error if a listing fails.
func TestCheck(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for i := range 2 {
			a := w.machine()
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			time.Sleep(20 * time.Second)
			before := k.Deadline()
			a.hooks.Count()
			if err := k.Check(t.Context()); err != nil || k.Deadline() != before {
				t.Errorf("confirm: %v, deadline %v later", err, k.Deadline()-before)
			}
			if total, by := a.hooks.Count(); total != 1 || by["list"] != 1 {
				t.Errorf("confirm sent %v", by)
			}
			a.hooks.Before(outage)
			if err := k.Check(t.Context()); !errors.Is(err, errOutage) || !alive(k) {
				t.Errorf("confirm in an outage: %v", err)
			}
			a.hooks.Before(nil)
			time.Sleep(15 * time.Second) // and a refresh
			if err := k.Check(t.Context()); err != nil {
				t.Errorf("confirm after a refresh: %v", err)
			}
			key := k.Key()
			if i == 1 && mode == Exclusive {
				key = "index/lock.exclusive"
			}
			if err := w.mem.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			var lost *LostError
			if err := k.Check(t.Context()); !errors.As(err, &lost) || !lost.Definite || lost.Key != key || alive(k) {
				t.Errorf("confirm of a broken lock: %v", err)
			}
			if err := k.Check(t.Context()); !errors.Is(err, ErrLost) {
				t.Errorf("confirm again: %v", err)
			}
			k.Release(t.Context())
			_ = w.mem.Delete(t.Context(), "index/lock.exclusive")
		}
		k, err := w.machine().acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		k.Release(t.Context())
		if err := k.Check(t.Context()); !errors.Is(err, ErrReleased) {
			t.Errorf("confirm of a released lock: %v", err)
		}
	})
}

// emptyFirst begins each listing with an empty page, as a server can that has much to skip.
type emptyFirst struct{ store.Store }

func (s emptyFirst) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	if cursor == "" {
		return store.Page{Next: "-"}, nil
	}
	return s.Store.List(ctx, prefix, strings.TrimPrefix(cursor, "-"))
}

// TestEmptyFirstPage: an empty page that isn't the last one doesn't mean an empty listing.
func TestEmptyFirstPage(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		a.store = emptyFirst{a.hooks}
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		time.Sleep(5 * time.Minute)
		if err := k.Check(t.Context()); err != nil || !alive(k) {
			t.Errorf("after five minutes: %v", err)
		}
		a.clock.setSkew(time.Minute) // as if the machine had been paused
		time.Sleep(DefaultLook)
		if err := k.Check(t.Context()); err != nil || !alive(k) {
			t.Errorf("after the clocks have parted: %v", err)
		}
		a.hooks.Before(outage)
		time.Sleep(DefaultTTL)
		a.hooks.Before(nil)
		if k, err = k.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Exclusive(t.Context(), "y"); !errors.Is(err, ErrHeld) {
			t.Errorf("another gets: %v", err)
		}
		if err := k.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestReleaseWithoutDelete: a holder without the right to delete puts an empty body, which
// others take for released. An acquirer that passes a stale lock does the same.
func TestReleaseWithoutDelete(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for range 3 {
			a := w.machine()
			a.hooks.Before(mayNotDelete)
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			if err := k.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			// A holder crashes, and an acquirer without the permission must pass its lock.
			k, err = a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			a.hooks.Before(outage)
			time.Sleep(2 * time.Minute)
		}
		infos, err := w.machine().Status(t.Context())
		if err != nil || mode == Exclusive && len(infos) != 1 {
			t.Errorf("status: %v %v", infos, err)
		}
	})
}

// TestReleaseFails: the error names the key, and Release ends in time.
func TestReleaseFails(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		a.hooks.Before(outage)
		start := time.Now()
		err = k.Release(t.Context())
		if !errors.Is(err, errOutage) || time.Since(start) > 30*time.Second {
			t.Errorf("release: %v after %v", err, time.Since(start))
		}
	})
}
