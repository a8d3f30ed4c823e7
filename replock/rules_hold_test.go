package replock

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/tap"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestStoreTimeIsALowerBound: what a look takes for the store's time is never
// ahead of it, and what it takes for the time of the look not after the listing
// was made, however long requests and answers are under way.
func TestStoreTimeIsALowerBound(t *testing.T) {
	for name, opts := range map[string]mem.Options{"told": {}, "not told": {NoTime: true}, "second": {Precision: time.Second}} {
		for _, gone := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, opts)
					w.skew.Store(int64(-time.Hour))
					a := w.machine()
					a.tap.Before(func(context.Context, tap.Request) error { time.Sleep(3 * time.Second); return nil })
					var listed time.Duration
					a.tap.After(func(_ context.Context, r tap.Request, err error) error {
						if r.Op == "list" {
							listed = a.clock.Elapsed()
						}
						time.Sleep(3 * time.Second)
						return err
					})
					tr, err := a.newTry(Shared, "x", nothingYet())
					if err != nil {
						t.Fatal(err)
					}
					check := func(st storeTime) {
						t.Helper()
						if ahead := st.when(a.clock.Elapsed()).Sub(time.Now().Add(time.Duration(w.skew.Load()))); st.known() && ahead > 0 {
							t.Errorf("%v ahead of the store", ahead)
						}
					}
					if err := a.raise(t.Context(), tr); err != nil {
						t.Fatal(err)
					}
					check(tr.st)
					if gone {
						w.mem.Delete(t.Context(), tr.flag.key)
						tr.flag.put = false
					}
					for range 2 {
						f, err := a.look(t.Context(), tr, sight{})
						if err != nil {
							t.Fatal(err)
						}
						check(f.st)
						if f.now > listed {
							t.Errorf("judged by the time %v after the listing", f.now-listed)
						}
					}
				})
			})
		}
	}
}

// TestVerdictMargin: the store's clock has to be 2 s past the lease's end.
func TestVerdictMargin(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		wrote := time.Now()
		e := &entry{Object: store.Object{Key: "index/lock.shared/x", ModTime: wrote}, kind: kindShared, since: a.clock.Elapsed(), read: true}
		e.lease, e.err = decode(foreign(wrote, true))
		a.clock.setSkew(time.Hour)
		for age, want := range map[time.Duration]Verdict{
			60 * time.Second: Live, 62 * time.Second: Live, 62*time.Second + 1: Stale,
		} {
			now := a.clock.Elapsed()
			a.judge(e, storeTime{wrote.Add(age), now}, now)
			if e.verdict != want {
				t.Errorf("%v old: %v, want %v", age, e.verdict, want)
			}
		}
	})
}

// TestSightNoticesChanges, of the ETag and of the mod time.
func TestSightNoticesChanges(t *testing.T) {
	now := time.Now()
	for _, o := range []store.Object{
		{Key: "k", ETag: "2", ModTime: now, Size: 1}, {Key: "k", ETag: "1", ModTime: now.Add(1), Size: 1}, {Key: "k", ETag: "1", ModTime: now, Size: 2},
	} {
		s := sight{}
		s.see(store.Object{Key: "k", ETag: "1", ModTime: now, Size: 1}, kindShared, time.Second)
		if e := s.see(o, kindShared, 2*time.Second); e.since != 2*time.Second {
			t.Errorf("%+v: seen since %v", o, e.since)
		}
		if e := s.see(o, kindShared, 3*time.Second); e.since != 2*time.Second {
			t.Errorf("%+v: unchanged, and seen since %v", o, e.since)
		}
	}
}

// TestUnreadYoungAndOld: a lock whose body can't be fetched is a lock while it is
// too young to be stale, and then the store's failure; it is never passed.
func TestUnreadYoungAndOld(t *testing.T) {
	for age, held := range map[time.Duration]bool{50 * time.Second: true, 61 * time.Second: false, time.Hour: false} {
		do(t, func(t *testing.T, w *world) {
			w.put("index/lock.shared/x", foreign(time.Now(), true))
			time.Sleep(age)
			a := w.machine()
			a.tap.Before(func(_ context.Context, r tap.Request) error {
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

// TestWaiting: the queue of PROTOCOL.md, Wait.
func TestWaiting(t *testing.T) {
	for _, c := range []struct {
		state  string
		before bool
		mode   Mode
		held   bool
	}{
		{stateWaiting, true, Exclusive, true}, {stateWaiting, false, Exclusive, false},
		{stateAcquiring, true, Exclusive, true}, {stateAcquiring, false, Exclusive, true},
		{stateHeld, false, Exclusive, true},
		{stateWaiting, true, Shared, true}, {stateWaiting, false, Shared, true},
	} {
		do(t, func(t *testing.T, w *world) {
			o, m := w.machine(), w.machine()
			tr, _ := o.newTry(Exclusive, "prune", nothingYet())
			tr.body.State = c.state
			tr.body.stamp(time.Now(), o.clock.Elapsed(), DefaultTTL)
			at := time.Now().Add(time.Hour)
			if c.before {
				at = time.Now().Add(-time.Hour)
			}
			w.put(o.keys.flag(Exclusive, at, tr.id), tr.body.encode())
			time.Sleep(5 * time.Second)
			k, err := m.acquire(t.Context(), c.mode, "x")
			if c.held {
				mustHeld(t, k, err)
			} else {
				mustLock(t, k, err)
				k.Release(t.Context())
			}
		})
	}
}

// TestOnlyExclusiveAcquirersTouchLockExclusive: a shared acquirer passes a stale one and
// leaves it as it is. A client of the original protocol may have put a live one there since
// it was read.
func TestOnlyExclusiveAcquirersTouchLockExclusive(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		const key = "index/lock.exclusive"
		w.put(key, foreign(time.Now(), false))
		time.Sleep(2 * time.Minute)
		a := w.machine()
		a.tap.Before(func(_ context.Context, r tap.Request) error {
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

// TestReapFails: an acquirer that can't delete a stale lock doesn't pass it.
func TestReapFails(t *testing.T) {
	for key, mode := range map[string]Mode{"index/lock.shared/x": Exclusive, "index/lock.intent/x": Shared} {
		do(t, func(t *testing.T, w *world) {
			w.put(key, foreign(time.Now(), strings.Contains(key, "shared")))
			time.Sleep(2 * time.Minute)
			a := w.machine()
			a.tap.Before(func(_ context.Context, r tap.Request) error {
				if r.Key == key && (r.Op == "delete" || r.Op == "put") {
					return store.ErrPermission
				}
				return nil
			})
			k, err := a.acquire(t.Context(), mode, "x")
			if k != nil || !errors.Is(err, store.ErrPermission) || !strings.Contains(err.Error(), key) {
				t.Errorf("%s: passed, or: %v", key, err)
			}
			a.tap.Before(nil)
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

// TestGetRefused: a conflict whose body may not be read is not passed.
func TestGetRefused(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.put("index/lock.shared/x", foreign(time.Now(), true))
		for _, age := range []time.Duration{0, time.Hour} {
			time.Sleep(age)
			a := w.machine()
			a.tap.Before(func(_ context.Context, r tap.Request) error {
				if r.Op == "get" {
					return store.ErrPermission
				}
				return nil
			})
			if k, err := a.Exclusive(t.Context(), "x"); k != nil || err == nil {
				t.Error("passed what it may not read")
			}
		}
	})
}

// TestRefreshIsDatedFromTheSend, and an exclusive one from the earlier of both.
func TestRefreshIsDatedFromTheSend(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		start := a.clock.Elapsed()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		var mu sync.Mutex
		sent := map[string]time.Duration{} // the last put of each object
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			mu.Lock()
			defer mu.Unlock()
			if r.Op == "put" && (r.Key == k.Key() || r.Key == "index/lock.exclusive") {
				sent[r.Key] = a.clock.Elapsed()
			}
			return nil
		})
		a.tap.After(func(_ context.Context, r tap.Request, err error) error {
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

// TestHalfARefresh: an exclusive lock of which one object can't be renewed isn't.
func TestHalfARefresh(t *testing.T) {
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
				fail := func(r tap.Request) bool { return r.Op == "put" && strings.Contains(r.Key, key) }
				if applied {
					// Answers of the put and of what could tell of it are lost.
					a.tap.After(func(_ context.Context, r tap.Request, err error) error {
						if strings.Contains(r.Key, key) {
							return errOutage
						}
						return err
					})
				} else {
					a.tap.Before(func(_ context.Context, r tap.Request) error {
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
				a.tap.Before(nil)
				a.tap.After(nil)
				k.Release(t.Context())
			})
		}
	}
}

// TestBodiesAreUnique: an ETag may be a function of the body.
func TestBodiesAreUnique(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		a.clock.setSkew(time.Hour)
		seen := map[string]bool{}
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "put" {
				l, err := decode(r.Body)
				if err != nil {
					t.Error(err)
				}
				b := l.body
				b.RefreshedAt, b.ExpiresAt, b.RefreshedBoot = "", "", 0 // a clock that stands still
				if raw := string(b.encode()); seen[raw] {
					t.Errorf("the same body again: %s", raw)
				} else {
					seen[raw] = true
				}
			}
			return nil
		})
		for range 2 {
			k, err := a.Shared(t.Context(), "x")
			mustLock(t, k, err)
			time.Sleep(2 * time.Minute)
			k.Release(t.Context())
		}
	})
}

// TestStates: acquiring, then held.
func TestStates(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, err := w.machine().Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		for _, want := range []string{stateAcquiring, stateHeld} {
			for _, key := range w.keys() {
				raw, _, _ := w.mem.Get(t.Context(), key, maxBody)
				if l, err := decode(raw); err != nil || l.State != want {
					t.Errorf("%s: %q %v, want %s", key, l.State, err, want)
				}
			}
			time.Sleep(31 * time.Second)
		}
		k.Release(t.Context())
	})
}

// TestReleaseWaitsForTheRefresh that is under way: it would put the flag back.
func TestReleaseWaitsForTheRefresh(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "put" {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		time.Sleep(31 * time.Second)
		if err := k.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		w.empty()
	})
}

// TestReleaseEndsTheContextFirst.
func TestReleaseEndsTheContextFirst(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "delete" && alive(k) {
				t.Error("others may be in, and the context lives")
			}
			return nil
		})
		k.Release(t.Context())
	})
}

// TestReleaseAfterAnHour deletes lock.exclusive: the lease is that of the last
// refresh.
func TestReleaseAfterAnHour(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, err := w.machine().Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		time.Sleep(time.Hour)
		k.Release(t.Context())
		w.empty()
	})
}

// TestReleaseOfALostLock leaves lock.exclusive alone, which may be another's.
func TestReleaseOfALostLock(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a, b := w.machine(), w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		time.Sleep(29 * time.Second)
		b.Break(t.Context(), BreakOptions{})
		other, err := b.Exclusive(t.Context(), "prune")
		mustLock(t, other, err)
		<-k.Context().Done()
		k.Release(t.Context())
		time.Sleep(time.Minute)
		if !alive(other) {
			t.Errorf("the successor was harmed: %v", other.Lost())
		}
		other.Release(t.Context())
	})
}

// TestNoResumeOfAnEmptiedFlag: who may not delete empties what he passes.
func TestNoResumeOfAnEmptiedFlag(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		a.lose(t, k)
		w.put(k.Key(), nil)
		a.tap.Before(nil)
		if r, err := k.Resume(t.Context()); r != nil || !errors.Is(err, ErrLost) {
			t.Errorf("resumed: %v", err)
		}
		k.Release(t.Context())
		_ = b
	})
}

// TestResumeStoppedMidway: a resume that was stopped for longer than a lease has
// not resumed with the flag that it put before.
func TestResumeStoppedMidway(t *testing.T) {
	for _, op := range []string{"list", "delete"} {
		for _, mode := range []Mode{Shared, Exclusive} {
			do(t, func(t *testing.T, w *world) {
				a := w.machine()
				k, err := a.acquire(t.Context(), mode, "x")
				mustLock(t, k, err)
				a.lose(t, k)
				a.tap.Before(nil)
				var done atomic.Bool
				a.tap.After(func(_ context.Context, r tap.Request, err error) error {
					if r.Op == op && (op == "delete" || r.Key == "index/lock.") && done.CompareAndSwap(false, true) {
						a.clock.jump(2 * time.Minute)
					}
					return err
				})
				r, err := k.Resume(t.Context())
				if r != nil {
					if left := r.Deadline() - a.clock.Elapsed(); left < 0 {
						t.Errorf("%s, stopped at %s: resumed with a lease that ended %v ago", mode, op, -left)
					}
					r.Release(t.Context())
				} else if !errors.Is(err, ErrLost) {
					t.Error(err)
				}
				k.Release(t.Context())
			})
		}
	}
}

// TestResumeWaitsForDoubt: what may be stale is not passed by a resume either.
func TestResumeAndDoubt(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k, err := a.Shared(t.Context(), "x")
		mustLock(t, k, err)
		a.lose(t, k)
		w.put("index/lock.intent/x", []byte("\x01 ciphertext"))
		time.Sleep(70 * time.Second)
		a.tap.Before(nil)
		if r, _ := k.Resume(t.Context()); r != nil {
			t.Error("resumed beside a lock that may be live")
		}
		k.Release(t.Context())
	})
}

// TestRandomnessFails is an error, not a lock with a guessable name.
func TestRandomnessFails(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine(func(o *Options) { o.Rand = io.LimitReader(nil, 0) })
		if k, err := a.Shared(t.Context(), "x"); k != nil || err == nil {
			t.Error("a lock without an id")
		}
	})
}

// TestResumeTriesAgain after a try that got as far as its look.
func TestResumeTriesAgain(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		a.lose(t, k)
		until := time.Now().Add(30 * time.Second)
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "list" && r.Key == "index/lock." && time.Now().Before(until) {
				return errOutage
			}
			return nil
		})
		r, err := k.Resume(t.Context())
		mustLock(t, r, err)
		time.Sleep(5 * time.Minute)
		if !alive(r) {
			t.Error(r.Lost())
		}
		r.Release(t.Context())
		k.Release(t.Context())
		w.empty()
	})
}

// TestStaleExclusiveIsOverwritten by an exclusive acquirer, never deleted: a late
// delete would hit its own, or a successor's.
func TestStaleExclusiveIsOverwritten(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		w.put("index/lock.exclusive", foreign(time.Now(), false))
		time.Sleep(3 * time.Minute)
		a := w.machine()
		deleted := 0
		a.tap.Before(func(_ context.Context, r tap.Request) error {
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
		a.tap.Before(nil)
		k.Release(t.Context())
	})
}

// TestRefusedCosts: who can't win yields at once.
func TestRefusedCosts(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		do(t, func(t *testing.T, w *world) {
			other, err := w.machine().Exclusive(t.Context(), "prune")
			mustLock(t, other, err)
			time.Sleep(10 * time.Second) // older than an acquirer that is about to withdraw
			a := w.machine()
			a.tap.Count()
			k, err := a.acquire(t.Context(), mode, "x")
			mustHeld(t, k, err)
			_, by := a.tap.Count()
			want := map[string]int{"put": int(mode), "list": 1, "get": 2, "delete": 1}
			if !maps.Equal(by, want) {
				t.Errorf("%s: %v, want %v", mode, by, want)
			}
			other.Release(t.Context())
		})
	}
	do(t, func(t *testing.T, w *world) { // another client has no intent
		w.put("index/lock.exclusive", foreign(time.Now(), false))
		a := w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustHeld(t, k, err)
		if _, by := a.tap.Count(); by["list"] != 1 {
			t.Errorf("%v", by)
		}
	})
}

// TestNoModTimes: a store that tells no mod times has no first witness, and a
// lock can't be shown to be stale by it.
func TestNoModTimes(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		e := &entry{kind: kindShared, since: a.clock.Elapsed(), read: true}
		e.lease, e.err = decode(foreign(time.Now().Add(-time.Hour), true))
		a.judge(e, storeTime{time.Now(), a.clock.Elapsed()}, a.clock.Elapsed())
		if e.verdict == Stale {
			t.Error("stale by one clock")
		}
	})
	_ = mem.Options{}
}

// TestLostAnswerIsDatedFromItsSend: a refresh that was applied, and of which only
// the next attempt learns, renewed the lease from its own send on.
func TestLostAnswerIsDatedFromItsSend(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		start := time.Now()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		// Only the puts at 30 s are applied, and none is answered.
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "put" && time.Since(start) > 30*time.Second {
				return errOutage
			}
			return nil
		})
		a.tap.After(func(_ context.Context, r tap.Request, err error) error {
			if r.Op == "put" {
				return errOutage
			}
			return err
		})
		<-k.Context().Done()
		if d := time.Since(start); d != 85*time.Second && d != 55*time.Second {
			t.Errorf("lost after %v, want 55 s after a send", d)
		}
		a.tap.Before(nil)
		a.tap.After(nil)
		k.Release(t.Context())
	})
}

// TestBrokenBetweenTwoPuts of one refresh: it isn't put back.
func TestBrokenBetweenTwoPuts(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k, err := a.Shared(t.Context(), "x")
		mustLock(t, k, err)
		var lost, gone atomic.Bool
		a.tap.After(func(_ context.Context, r tap.Request, err error) error {
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

// TestResumeNeedsLockExclusive, which other clients' break-lock deletes.
func TestResumeNeedsLockExclusive(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		a.lose(t, k)
		a.tap.Before(first("list", "index/lock.", func(r tap.Request) error { return nil }))
		var done atomic.Bool
		a.tap.After(func(ctx context.Context, r tap.Request, err error) error {
			if r.Op == "put" && strings.HasSuffix(r.Key, "lock.exclusive") && done.CompareAndSwap(false, true) {
				w.mem.Delete(context.Background(), r.Key)
			}
			return err
		})
		if r, err := k.Resume(t.Context()); r != nil || !errors.Is(err, ErrLost) {
			t.Errorf("resumed without lock.exclusive: %v", err)
		}
		k.Release(t.Context())
	})
}

// TestFenceNeedsConditions, and survives a lost answer and a contender.
func TestFenceNeedsConditions(t *testing.T) {
	fenced := func(o *Options) { o.Fence = true }
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		p := w.mem.Properties()
		k, err := w.machine(fenced).Exclusive(t.Context(), "x")
		if kept := p.IfAbsent == store.Kept && p.IfMatch == store.Kept; (k != nil) != kept || kept == errors.Is(err, ErrFence) {
			t.Errorf("%+v: %v", p, err)
		}
		if k != nil {
			k.Release(t.Context())
		}
	})
	do(t, func(t *testing.T, w *world) {
		a := w.machine(fenced)
		for want := uint64(1); want < 4; want++ {
			var lost, raced atomic.Bool
			a.tap.Before(func(_ context.Context, r tap.Request) error {
				if r.Op == "put" && strings.HasSuffix(r.Key, "lock-fence") && want == 3 && raced.CompareAndSwap(false, true) {
					w.put(r.Key, []byte(`{"fence":10,"id":"another"}`)) // a late put of an earlier holder
				}
				return nil
			})
			a.tap.After(func(_ context.Context, r tap.Request, err error) error {
				if r.Op == "put" && strings.HasSuffix(r.Key, "lock-fence") && lost.CompareAndSwap(false, true) && err == nil {
					return errOutage
				}
				return err
			})
			k, err := a.Exclusive(t.Context(), "x")
			mustLock(t, k, err)
			expect := want
			if want == 3 {
				expect = 11
			}
			if n, _ := k.Fence(); n != expect {
				t.Errorf("fence %d, want %d", n, expect)
			}
			k.Release(t.Context())
		}
	})
}

// TestStatusReadsAllPages.
func TestStatusReadsAllPages(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.flags(2500)
		if infos, err := w.machine().Status(t.Context()); err != nil || len(infos) != 2500 {
			t.Errorf("%d of 2500: %v", len(infos), err)
		}
		if broken, err := w.machine().Break(t.Context(), BreakOptions{}); err != nil || len(broken) != 2500 || len(w.keys()) > 0 {
			t.Errorf("broke %d, left %d: %v", len(broken), len(w.keys()), err)
		}
	})
	_ = mem.Options{}
}

// TestStoppedWhileReaping: who was stopped between the look and the hold for
// longer than the lease doesn't hold.
func TestStoppedWhileReaping(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.put("index/lock.shared/x", foreign(time.Now(), true))
		time.Sleep(3 * time.Minute)
		a := w.machine()
		var done atomic.Bool
		a.tap.After(func(_ context.Context, r tap.Request, err error) error {
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
