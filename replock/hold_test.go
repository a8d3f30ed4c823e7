package replock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
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

func TestHeldForAnHour(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k, err := a.acquire(t.Context(), mode, "long")
		mustLock(t, k, err)
		for range 60 {
			time.Sleep(61 * time.Second)
			b.refused(t, Exclusive)
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
		k := a.takes(t, mode)
		a.hooks.Before(outage)
		lostAt := make(chan time.Duration, 1)
		context.AfterFunc(k.Context(), func() { lostAt <- time.Since(start) })
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
		if at := <-lostAt; at != 55*time.Second {
			t.Errorf("lost after %v, want 55s", at)
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
		k := a.takes(t, mode)
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
	})
}

// TestHangingRequests: the lock's context ends even if the store answers nothing and ignores
// contexts.
func TestHangingRequests(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		start := time.Now()
		k := a.takes(t, mode)
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
				k := a.takes(t, mode)
				key := k.Key()
				if what == "exclusive" {
					key = "index/lock.exclusive"
				}
				switch how {
				case "deleted":
					w.delete(key)
				case "emptied":
					w.put(key, nil)
				case "replaced":
					w.put(key, []byte(`{"operation":"prune","holder":"h (pid 1)","acquired_at":"2026-01-01T00:00:00Z","expires_at":"2026-01-01T00:01:00Z"}`))
				case "garbage":
					w.put(key, []byte("garbage"))
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
				w.delete("index/lock.exclusive")
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
		k := a.takes(t, mode)
		time.Sleep(10 * time.Minute)
		if !alive(k) {
			t.Fatalf("lost: %v", k.Lost())
		}
		k.Release(t.Context())
		w.empty()
	})
}

func TestRenew(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k := a.takes(t, Shared)
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
		w.delete(k.Key())
		if err := k.Renew(t.Context()); !errors.Is(err, ErrLost) || alive(k) {
			t.Errorf("check of a broken lock: %v", err)
		}
	})
}

// TestCheck: Check detects a change of any of a lock's objects, writes nothing, and returns an
// error if a listing fails.
func TestCheck(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for i := range 2 {
			a := w.machine()
			k := a.takes(t, mode)
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
			w.delete(key)
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
		k := w.machine().takes(t, mode)
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
		k := a.takes(t, mode)
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
		k = mustResume(t, k)
		if _, err := b.Exclusive(t.Context(), "y"); !errors.Is(err, ErrHeld) {
			t.Errorf("another gets: %v", err)
		}
		mustRelease(t, k)
	})
}

// TestReleaseWithoutDelete: a holder without the right to delete puts an empty body, which
// others take for released. An acquirer that passes a stale lock does the same.
func TestReleaseWithoutDelete(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for range 3 {
			a := w.machine()
			a.hooks.Before(mayNotDelete)
			k := a.takes(t, mode)
			mustRelease(t, k)
			// A holder crashes, and an acquirer without the permission must pass its lock.
			a.takes(t, mode)
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
		k := a.takes(t, mode)
		a.hooks.Before(outage)
		start := time.Now()
		err := k.Release(t.Context())
		if !errors.Is(err, errOutage) || time.Since(start) > 30*time.Second {
			t.Errorf("release: %v after %v", err, time.Since(start))
		}
	})
}

// TestRefreshStoppedAfterItsLookPutsNothingBack: a machine that was suspended between the look of a
// refresh and its put doesn't put a broken lock back, on a store that ignores If-Match.
func TestRefreshStoppedAfterItsLookPutsNothingBack(t *testing.T) {
	bothModes(t, lacking, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k := a.takes(t, mode)
		var broken atomic.Bool
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "list" && r.Key == "index/lock.exclusive" {
				time.Sleep(time.Millisecond) // looked at after the flag, not at the same time
			}
			return nil
		})
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "list" && r.Key == k.Key() && broken.CompareAndSwap(false, true) {
				a.clock.jump(9 * time.Second) // longer than a request has
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
	})
}

// TestFlagIsDatedInTime: a flag can have been reaped if its new mod time is more than a ttl after the one
// before. Such a refresh, which was applied late, doesn't date the flag: each later one would look timely.
func TestFlagIsDatedInTime(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		for _, ttl := range []time.Duration{MinTTL, DefaultTTL, MaxTTL} {
			began := time.Now()
			r := renewer{l: w.machine(func(o *Options) { o.TTL = ttl }).Locker}
			r.date(began)
			for late, reapable := range map[time.Duration]bool{ttl - 1: false, ttl: false, ttl + 1: true} {
				if got := r.reapable(began.Add(late)); got != reapable {
					t.Errorf("ttl %v, written %v after the version before: reapable %t", ttl, late, got)
				}
			}
			r.date(began.Add(ttl + 1))
			if !r.reapable(began.Add(ttl + 2)) {
				t.Errorf("ttl %v: dated by a late refresh", ttl)
			}
			r.date(began.Add(ttl))
			if r.reapable(began.Add(2 * ttl)) {
				t.Errorf("ttl %v: not dated by a refresh in time", ttl)
			}
		}
	})
}

// TestRefreshIsDatedFromTheSend: a refresh renews the lease from its send, an exclusive one from
// the earlier of both sends.
func TestRefreshIsDatedFromTheSend(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		start := a.clock.Elapsed()
		k := a.takes(t, mode)
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
				k := a.takes(t, mode)
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
		k := a.takes(t, mode)
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
	})
}

// TestRefreshPutsNoBrokenLockBack: a lock that is broken between two puts of one refresh isn't
// put back.
func TestRefreshPutsNoBrokenLockBack(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k := a.takes(t, Shared)
		var lost, gone atomic.Bool
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			switch {
			case r.Op == "put" && lost.CompareAndSwap(false, true):
				return errOutage // applied: the next one finds another ETag
			case r.Op == "get" && gone.CompareAndSwap(false, true):
				w.delete(k.Key())
			}
			return err
		})
		time.Sleep(45 * time.Second)
		for _, key := range w.keys() {
			t.Errorf("put back: %s", key)
		}
		<-k.Context().Done()
	})
}

// TestRefreshesComeApart: locks that were acquired at one time aren't refreshed at one time,
// and none is refreshed later than at half of its ttl.
func TestRefreshesComeApart(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		start := time.Now()
		var machines []*machine
		for range 64 {
			m := w.machine()
			m.earlier = m.early
			k := m.takes(t, Shared)
			defer k.Release(t.Context())
			machines = append(machines, m)
		}
		time.Sleep(31 * time.Second)
		var first []time.Duration
		for _, m := range machines {
			m.Flush(t.Context())
			m.mu.Lock()
			i := slices.IndexFunc(m.seen, func(e Event) bool { return e.Kind == EventRefreshed })
			if i < 0 {
				t.Fatal("not refreshed after half of its ttl")
			}
			first = append(first, m.seen[i].Time.Sub(start))
			m.mu.Unlock()
		}
		slices.Sort(first)
		if first[0] < 27*time.Second || first[63] > 30*time.Second || first[63]-first[0] < time.Second {
			t.Errorf("first refreshed from %v to %v", first[0], first[63])
		}
		if len(slices.Compact(first)) < 32 {
			t.Errorf("refreshed at the same time: %v", first)
		}
	})
}
