package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

var (
	errOutage    = errors.New("503 service unavailable")
	outage       = fails("", "", errOutage)
	takesASecond = slow("", "", time.Second)
	mayNotDelete = fails("delete", "", store.ErrPermission)
)

func TestHeldForAnHour(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		b := w.machine()
		a, k := w.holder(t, mode)
		for range 60 {
			time.Sleep(61 * time.Second)
			b.refused(t, Exclusive)
			lives(t, k)
		}
		n := a.saw(EventRefreshed)
		assert.That(t, n >= 120 && n <= 123, "refreshed %d times in 61 minutes, want one each 30 s", n)
		w.leavesNothing(k)
	})
}

// TestLostAtDeadline: without an answer the lock is lost 55 s after its last refresh was sent,
// after three failures, and no other acquirer enters before.
func TestLostAtDeadline(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		b := w.machine()
		start := time.Now()
		a, k := w.holder(t, mode)
		a.hooks.Before(outage)
		lostAt := make(chan time.Duration, 1)
		context.AfterFunc(k.Context(), func() { lostAt <- time.Since(start) })
		b.untilFree(t, Exclusive, 500*time.Millisecond)
		in := time.Since(start)
		equal(t, "lost after", <-lostAt, 55*time.Second)
		if w.clockless {
			in -= DefaultTTL // it had to watch
		}
		assert.That(t, in >= 60*time.Second && in <= 65*time.Second, "another got in after %v, want ttl to ttl + 5 s", in)
		n := a.saw(EventRefreshFailed)
		assert.That(t, n == 3 && a.saw(EventGaveUp) == 1, "%d failures, gave up %d times; want 3 and 1", n, a.saw(EventGaveUp))
		var lost *LostError
		assert.That(t, errors.As(context.Cause(k.Context()), &lost) && !lost.Definite && errors.Is(lost, errOutage),
			"cause: %v", context.Cause(k.Context()))
		isAll(t, k.Refresh(t.Context()), ErrLost)
	})
}

// TestBroken: a holder whose flag is deleted, emptied or replaced loses its lock for good at
// the next refresh. For an exclusive lock, so does one whose lock.exclusive is.
func TestBroken(t *testing.T) {
	for how, f := range map[string]func(w *world, key string){
		"deleted":  (*world).delete,
		"emptied":  func(w *world, key string) { w.put(key, nil) },
		"replaced": func(w *world, key string) { w.put(key, foreign(time.Now(), true)) },
		"garbage":  func(w *world, key string) { w.put(key, []byte("garbage")) },
	} {
		t.Run(how, func(t *testing.T) {
			stores.objects(t, func(t *testing.T, w *world, _ *machine, k *Lock, key string) {
				f(w, key)
				equal(t, "lost", endsForGood(t, k, 30*time.Second).Key, key)
				mustNotResume(t, k)
				k.Release(t.Context())
				w.delete(pointer)
				w.empty()
			})
		})
	}
}

// TestCheck: Check detects a change of any of a lock's objects, writes nothing, and fails if a listing does.
func TestCheck(t *testing.T) {
	stores.objects(t, func(t *testing.T, w *world, a *machine, k *Lock, key string) {
		time.Sleep(20 * time.Second)
		before := k.lease.Deadline()
		a.hooks.Count()
		assert.OK(t, k.Check(t.Context()))
		equal(t, "the deadline is later by", k.lease.Deadline()-before, 0)
		a.sentJust(t, map[string]int{"list": 1})
		a.hooks.Before(outage)
		isAll(t, k.Check(t.Context()), errOutage)
		lives(t, k)
		a.hooks.Before(nil)
		time.Sleep(15 * time.Second) // and a refresh
		assert.OK(t, k.Check(t.Context()))
		w.delete(key)
		isAll(t, k.Check(t.Context()), ErrLost)
		lost := whyLost(k)
		assert.That(t, !alive(k) && lost != nil && lost.Definite && lost.Key == key, "lost: %v", lost)
		isAll(t, k.Check(t.Context()), ErrLost)
		k.Release(t.Context())
		w.delete(pointer)
		other := w.machine().takes(t, k.Mode())
		other.Release(t.Context())
		isAll(t, other.Check(t.Context()), ErrReleased)
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
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		a.store = emptyFirst{a.hooks}
		k := a.takes(t, mode)
		time.Sleep(5 * time.Minute)
		assert.OK(t, k.Check(t.Context()))
		a.clock.setSkew(time.Minute) // as if the machine had been paused
		time.Sleep(DefaultLook)
		assert.OK(t, k.Check(t.Context()))
		a.outlives(t, k)
		mustResume(t, k)
		w.machine().refused(t, Exclusive)
		mustRelease(t, k)
	})
}

// TestReleaseWithoutDelete: a holder that may not delete puts an empty body. An acquirer that may removes it.
func TestReleaseWithoutDelete(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		for range 3 {
			a := w.machine()
			a.hooks.Before(mayNotDelete)
			mustRelease(t, a.takes(t, mode))
			// A holder crashes, and an acquirer without the permission must pass its lock.
			a.takes(t, mode)
			a.hooks.Before(outage)
			time.Sleep(2 * time.Minute)
		}
		infos, err := w.machine().Status(t.Context())
		assert.That(t, err == nil && (mode != Exclusive || len(infos) == 1), "status: %v %v", infos, err)
		w.machine().untilFree(t, Exclusive, time.Second)
		w.empty()
	})
}

// TestRefreshStoppedAfterItsLookPutsNothingBack: a machine that was suspended between the look of a
// refresh and its put doesn't put a broken lock back, on a store that ignores If-Match.
func TestRefreshStoppedAfterItsLookPutsNothingBack(t *testing.T) {
	bothHolders(t, lacking, func(t *testing.T, w *world, a *machine, k *Lock) {
		a.hooks.Before(slow("list", pointer, time.Millisecond)) // looked at after the flag, not at the same time
		var broken atomic.Bool
		a.hooks.After(firstAnswered("list", k.Key(), func(hookstore.Request) {
			a.clock.jump(9 * time.Second) // longer than a request has
			w.breakAll()
			broken.Store(true)
		}))
		time.Sleep(DefaultTTL)
		assert.That(t, broken.Load() && !alive(k), "broken %t, alive %t", broken.Load(), alive(k))
		w.empty()
	})
}

// TestFlagIsDatedInTime: a flag can have been reaped if its new mod time is more than a ttl after the one
// before. Such a refresh, which was applied late, doesn't date the flag: each later one would look timely.
func TestFlagIsDatedInTime(t *testing.T) {
	eachOf(t, []time.Duration{MinTTL, DefaultTTL, MaxTTL}, func(t *testing.T, w *world, ttl time.Duration) {
		began := time.Now()
		r := renewer{l: w.machine(func(o *Options) { o.TTL = ttl }).Locker}
		reapable := func(after time.Duration, want bool) {
			t.Helper()
			equal(t, fmt.Sprintf("ttl %v, written after %v, reapable", ttl, after), r.reapable(began.Add(after)), want)
		}
		r.date(began)
		reapable(ttl-1, false)
		reapable(ttl, false)
		reapable(ttl+1, true)
		r.date(began.Add(ttl + 1))
		reapable(ttl+2, true)
		r.date(began.Add(ttl))
		reapable(2*ttl, false)
	})
}

// TestRefreshIsDatedFromTheSend: a refresh renews the lease from its send, an exclusive one from the earlier send.
func TestRefreshIsDatedFromTheSend(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		start := a.clock.Elapsed()
		k := a.takes(t, mode)
		var flags, pointers notes[time.Duration]
		a.hooks.Before(inTurn(
			on("put", k.Key(), func(hookstore.Request) { flags.add(a.clock.Elapsed()) }),
			on("put", pointer, func(hookstore.Request) { pointers.add(a.clock.Elapsed()) })))
		a.hooks.After(lateAnswer("put", "", 3*time.Second))
		time.Sleep(40 * time.Second)
		last := func(n *notes[time.Duration]) time.Duration { return n.got()[len(n.got())-1] }
		earlier := last(&flags)
		if mode == Exclusive {
			earlier = min(earlier, last(&pointers))
		}
		d := k.lease.Deadline()
		assert.That(t, d == earlier+55*time.Second && d >= start+85*time.Second,
			"the deadline is %v after the start, the earlier put %v", d-start, earlier-start)
	})
}

// TestExclusiveIsRenewedWhole: an exclusive lock isn't renewed if one of its objects isn't, or if the answers
// to its put, and to requests that could show the put's result, are lost.
func TestExclusiveIsRenewedWhole(t *testing.T) {
	for _, key := range []string{"lock.intent", pointer} {
		for _, applied := range yesNo {
			stores.each(t, func(t *testing.T, w *world) {
				start := time.Now()
				a, k := w.holder(t, Exclusive)
				if applied {
					a.hooks.After(unanswered("", key))
				} else {
					a.hooks.Before(fails("put", key, errOutage))
				}
				<-k.Context().Done()
				took(t, start, 55*time.Second, 55*time.Second)
			})
		}
	}
}

// TestLostAnswerIsDatedFromItsSend: a refresh that is found to have been applied renews the lease from its own send.
func TestLostAnswerIsDatedFromItsSend(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		start := time.Now()
		a, k := w.holder(t, mode)
		var sends notes[time.Duration]
		sends.add(0)
		// Only the puts up to 32 s are applied, and none is answered.
		a.hooks.Before(on("put", "", func(hookstore.Request) { sends.add(time.Since(start)) }))
		time.AfterFunc(32*time.Second, func() { a.hooks.Before(fails("put", "", errOutage)) })
		a.hooks.After(unanswered("put", ""))
		<-k.Context().Done()
		d := time.Since(start)
		assert.That(t, slices.Contains(sends.got(), d-55*time.Second), "lost after %v, want 55 s after a send", d)
	})
}

// TestRefreshPutsNoBrokenLockBack: a lock that is broken between two puts of one refresh isn't put back.
func TestRefreshPutsNoBrokenLockBack(t *testing.T) {
	holding(t, memory.Options{}, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
		a.hooks.Before(first("put", "", func(r hookstore.Request) error {
			w.put(r.Key, r.Body)
			return errOutage // applied: the next one finds another ETag
		}))
		a.hooks.After(firstAnswered("get", "", func(hookstore.Request) { w.delete(k.Key()) }))
		time.Sleep(45 * time.Second)
		w.empty()
		<-k.Context().Done()
	})
}

// TestRefreshesComeApart: locks that were acquired at one time are refreshed apart, and before half of the ttl.
func TestRefreshesComeApart(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		start := time.Now()
		var sends notes[time.Duration]
		for range 64 {
			m := w.machine()
			m.earlier = m.early
			m.takes(t, Shared)
			m.hooks.Before(on("put", "", func(hookstore.Request) { sends.add(time.Since(start)) }))
		}
		time.Sleep(31 * time.Second)
		first := sends.got()
		if n := len(first); n != 64 || first[0] < 27*time.Second || first[63] > 30*time.Second || first[63]-first[0] < time.Second {
			t.Errorf("first refreshed at %v", first)
		}
		assert.That(t, len(slices.Compact(first)) >= 32, "refreshed at the same time: %v", first)
	})
}

// TestRefreshPrepares: the look and the put of a refresh have one Preparation for each object, so that a backend can prepare
// the put meanwhile. It ends with the refresh, also if no put follows.
func TestRefreshPrepares(t *testing.T) {
	bubble(t, lacking, func(t *testing.T, w *world) {
		m := w.machine()
		k := m.takes(t, Exclusive)
		var kept, taken, undone atomic.Int32
		m.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
			switch p := store.Prepares(ctx); {
			case r.Op == "list" && p != nil:
				equal(t, "the key", p.Key, r.Key)
				kept.Add(1)
				p.Keep(r.Key, func() { undone.Add(1) })
			case r.Op == "put" && p.Take(r.Key) == any(r.Key):
				taken.Add(1)
			}
			return nil
		})
		assert.OK(t, k.Refresh(t.Context()))
		equal(t, "kept, taken, undone", [3]int32{kept.Load(), taken.Load(), undone.Load()}, [3]int32{2, 2, 0})
		for _, key := range w.keys() {
			assert.OK(t, w.mem.Delete(t.Context(), key))
		}
		assert.That(t, k.Refresh(t.Context()) != nil, "it refreshed a broken lock")
		equal(t, "kept, undone", kept.Load()-taken.Load(), undone.Load())
		assert.That(t, undone.Load() > 0, "nothing was undone")
	})
}
