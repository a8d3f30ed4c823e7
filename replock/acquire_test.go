package replock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestHeldErrorCountsNoPassedLocks: HeldError.More counts holders, not stale locks that were passed.
func TestHeldErrorCountsNoPassedLocks(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.flags(500)
		time.Sleep(5 * time.Minute)
		w.machine().takes(t, Shared)
		time.Sleep(5 * time.Second)
		if held := w.machine().refused(t, Exclusive); held.More > 0 {
			t.Errorf("one holder, and: %v", held)
		}
	})
}

// TestOwnFlagMustBeListed: a lock isn't granted if the listing lacks its own flag.
func TestOwnFlagMustBeListed(t *testing.T) {
	bothModes(t, mem.Options{}, func(t *testing.T, w *world, mode Mode) {
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
			a.takes(t, mode)
			for _, left := range w.keys() {
				if left == key && mode == Shared {
					t.Errorf("passed %s and left it", key)
				}
			}
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
		k := a.takes(t, Exclusive)
		if left := k.Deadline() - a.clock.Elapsed(); left <= 0 {
			t.Errorf("acquired with a lease that ended %v ago", -left)
		}
	})
}

// TestTriesAreCounted: three tries in a row that are too late end an acquire, or two on a store that is too
// slow. A lock in the way, for which it waits, begins the count anew.
func TestTriesAreCounted(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		for _, errs := range [][]error{{errLate, errLate, errLate}, {errLate, ErrSlow}, {errLate, errLate, ErrHeld, errLate, errLate, errLate}, {ErrSlow, errDoubt, ErrSlow, ErrSlow}} {
			a := again{l: w.machine().Locker}
			for n, err := range errs {
				want := startAgain
				switch {
				case n == len(errs)-1:
					want = giveUp
				case err == ErrHeld || err == errDoubt:
					want = queueUp
				}
				if next := a.afterTry(&try{deadline: Forever}, err, true); next.step != want {
					t.Errorf("%v: step %d after the %dth", errs, next.step, n+1)
				}
			}
		}
	})
}

// TestLeaseIsDatedFromTheSend: a lease is dated from when its put was sent, not from its answer.
func TestLeaseIsDatedFromTheSend(t *testing.T) {
	bothModes(t, mem.Options{}, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "put" {
				time.Sleep(7 * time.Second)
			}
			return err
		})
		start := a.clock.Elapsed()
		k := a.takes(t, mode)
		if d := k.Deadline() - start; d != 55*time.Second {
			t.Errorf("%s: the deadline is %v after the first send", mode, d)
		}
	})
}

// TestCancelledAcquireLeavesNothing: a caller that cancels in the last moment gets no lock,
// and nothing is left.
func TestCancelledAcquireLeavesNothing(t *testing.T) {
	bothModes(t, mem.Options{}, func(t *testing.T, w *world, mode Mode) {
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

// TestUnansweredPutsAreWithdrawn: an acquirer withdraws puts that got no answer as well.
func TestUnansweredPutsAreWithdrawn(t *testing.T) {
	bothModes(t, mem.Options{}, func(t *testing.T, w *world, mode Mode) {
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

// TestOwnLeftoversDoNotConflict: the objects of an earlier try don't lock a later try of the same
// acquire out.
func TestOwnLeftoversDoNotConflict(t *testing.T) {
	bothModes(t, mem.Options{}, func(t *testing.T, w *world, mode Mode) {
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
		k := a.takes(t, mode)
		time.Sleep(2 * time.Minute)
		if !alive(k) {
			t.Error(k.Lost())
		}
	})
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
		sub(t, c.first.String()+" then "+c.second.String(), mem.Options{}, func(t *testing.T, w *world) {
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
	}
}

func TestEachNameIsItsOwnLock(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		for _, name := range []string{"", "a", "b"} {
			k := w.machine(func(o *Options) { o.Name = name }).takes(t, Exclusive)
			defer k.Release(t.Context())
		}
		w.machine(func(o *Options) { o.Name = "a" }).refused(t, Shared)
	})
}

// TestListingOutweighsA404: a lock that LIST shows is held, although GET answers 404.
func TestListingOutweighsA404(t *testing.T) {
	for _, first := range []Mode{Shared, Exclusive} {
		for _, second := range []Mode{Shared, Exclusive} {
			if first == Shared && second == Shared {
				continue
			}
			sub(t, first.String()+second.String(), mem.Options{}, func(t *testing.T, w *world) {
				a, b := w.machine(), w.machine()
				k := a.takes(t, first)
				time.Sleep(time.Second)
				b.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
					if r.Op == "get" {
						return store.ErrNotFound
					}
					return err
				})
				b.refused(t, second)
				if _, by := b.hooks.Count(); by["list"] != 1+maxAgain || !alive(k) {
					t.Errorf("%v; lost: %v", by, k.Lost())
				}
			})
		}
	}
}

// TestEmptyAnswerIsNoRelease: an empty answer to a GET doesn't count as a released lock if LIST gave
// a size.
func TestEmptyAnswerIsNoRelease(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a, b := w.machine(), w.machine()
		k := a.takes(t, Exclusive)
		b.Locker.store = emptyGets{b.hooks}
		other, _ := b.Shared(t.Context(), "y")
		if other != nil && alive(k) {
			t.Error("both in: an empty answer counts as a released lock, though LIST gave a size")
			other.Release(t.Context())
		}
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
		for _, failure := range []error{errOutage, store.ErrPermission} {
			do(t, func(t *testing.T, w *world) {
				w.put("index/lock.shared/x", foreign(time.Now(), true))
				time.Sleep(age)
				a := w.machine()
				a.hooks.Before(fails("get", "", failure))
				k, err := a.Exclusive(t.Context(), "x")
				if k != nil || errors.Is(err, ErrHeld) != held || errors.Is(err, failure) == held {
					t.Errorf("%v old, %v: %v", age, failure, err)
				}
			})
		}
	}
}

// referee checks that no holder is in together with an exclusive one.
type referee struct {
	t      *testing.T
	mu     sync.Mutex
	in     map[*Lock]bool
	grants map[Mode]int
}

func (r *referee) enter(k *Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grants[k.Mode()]++
	r.in[k] = true
	for other := range r.in {
		if other != k && alive(other) && alive(k) && (other.Mode() == Exclusive || k.Mode() == Exclusive) {
			r.t.Errorf("%s %s and %s %s are both in", k.Mode(), k.ID(), other.Mode(), other.ID())
		}
	}
}

func (r *referee) leave(k *Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.in, k)
}

// contend makes n clients take locks at random for a while, with requests that take random
// times and fail, before or after they are applied.
func contend(t *testing.T, seed uint64, opts mem.Options, n int, share, fail float64) *referee {
	r := &referee{t: t, in: map[*Lock]bool{}, grants: map[Mode]int{}}
	w := newWorld(t, opts)
	var wg sync.WaitGroup
	for i := range n {
		m := w.machine(func(o *Options) { o.TTL = MinTTL })
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		var mu sync.Mutex
		chance := func(p float64) bool { mu.Lock(); defer mu.Unlock(); return rng.Float64() < p }
		delay := func(most time.Duration) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(rng.Int64N(int64(most)))
		}
		m.hooks.Before(func(context.Context, hookstore.Request) error {
			time.Sleep(delay(200 * time.Millisecond))
			if chance(fail / 2) {
				return errOutage
			}
			return nil
		})
		m.hooks.After(func(_ context.Context, _ hookstore.Request, err error) error {
			time.Sleep(delay(200 * time.Millisecond))
			if chance(fail / 2) {
				return errOutage
			}
			return err
		})
		wg.Go(func() {
			for range 20 {
				mode := Exclusive
				if chance(share) {
					mode = Shared
				}
				k, err := m.acquire(t.Context(), mode, "x")
				if err != nil {
					time.Sleep(delay(3 * time.Second))
					continue
				}
				r.enter(k)
				select {
				case <-k.Context().Done():
				case <-time.After(delay(20 * time.Second)):
				}
				r.leave(k)
				k.Release(t.Context())
				time.Sleep(delay(time.Second))
			}
		})
	}
	wg.Wait()
	time.Sleep(2 * time.Minute)
	return r
}

func TestContention(t *testing.T) {
	for name, opts := range map[string]mem.Options{
		"kept": {}, "lacked": lacking, "claimed": claiming,
		"ignored": ignoring, "second": {Precision: time.Second, NoTime: true},
	} {
		for _, fail := range []float64{0, 0.1, 0.4} {
			t.Run(fmt.Sprintf("%s, %v fail", name, fail), func(t *testing.T) {
				grants := map[Mode]int{}
				for seed := range uint64(5) {
					synctest.Test(t, func(t *testing.T) {
						// With more shared ones, no exclusive acquirer that doesn't wait is
						// sure to get in.
						r := contend(t, seed, opts, 5, 0.25, fail)
						grants[Shared] += r.grants[Shared]
						grants[Exclusive] += r.grants[Exclusive]
					})
				}
				t.Logf("granted %v", grants)
				if grants[Shared] == 0 || grants[Exclusive] == 0 && fail < 0.4 {
					t.Errorf("granted %v", grants)
				}
			})
		}
	}
}

// contender is an acquirer that starts a while after the others.
type contender struct {
	*machine
	mode  Mode
	after time.Duration
}

// winners returns how many contenders get the lock. Each holds it until the last one knows. The
// others fail as allowed reports.
func winners(t *testing.T, allowed func(error) bool, all ...contender) int {
	locks := make(chan *Lock, len(all))
	for _, c := range all {
		go func() {
			time.Sleep(c.after)
			k, err := c.acquire(t.Context(), c.mode, "x")
			if err != nil && !allowed(err) {
				t.Error(err)
			}
			locks <- k
		}()
	}
	var got []*Lock
	for range all {
		if k := <-locks; k != nil {
			got = append(got, k)
		}
	}
	for _, k := range got {
		k.Release(t.Context())
	}
	return len(got)
}

// isHeld reports whether an acquirer was refused by a lock that it names, and by nothing else.
func isHeld(err error) bool {
	_, ok := err.(*HeldError)
	return ok
}

func heldOrSlow(err error) bool { return errors.Is(err, ErrHeld) || errors.Is(err, ErrSlow) }

// varied makes each request take a round trip, give or take a quarter of it.
func (m *machine) varied(trip time.Duration) {
	m.hooks.Before(func(context.Context, hookstore.Request) error { time.Sleep(trip/4 + m.jitter(trip/4)); return nil })
	m.hooks.After(func(_ context.Context, _ hookstore.Request, err error) error {
		time.Sleep(trip/4 + m.jitter(trip/4))
		return err
	})
}

// TestOneOfManyWins: of exclusive acquirers that start at one time, one gets the lock.
func TestOneOfManyWins(t *testing.T) {
	for name, opts := range map[string]mem.Options{"kept": {}, "lacked": lacking, "ignored": ignoring} {
		t.Run(name, func(t *testing.T) {
			won, n := 0, rounds.Fewer(200, 50)
			for range n {
				bubble(t, opts, func(t *testing.T, w *world) {
					var all []contender
					for range 8 {
						m := w.machine()
						m.varied(10 * time.Millisecond)
						all = append(all, contender{m, Exclusive, 0})
					}
					in := winners(t, heldOrSlow, all...)
					if in > 1 {
						t.Fatalf("%d exclusives are in", in)
					}
					won += in
				})
			}
			if won < n*9/10 {
				t.Errorf("one of 8 won in only %d of %d rounds", won, n)
			}
		})
	}
}

// TestSharedNeverBlockEachOther: shared acquirers at one time all get in.
func TestSharedNeverBlockEachOther(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		var wg sync.WaitGroup
		for range 50 {
			m := w.machine()
			wg.Go(func() {
				k, err := m.Shared(t.Context(), "backup")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Minute)
				k.Release(t.Context())
			})
		}
		wg.Wait()
	})
}

// TestAcquireAfterItsDeadline: an acquire whose look took longer than its lease fails in that
// attempt, leaves nothing, and starts again.
func TestAcquireAfterItsDeadline(t *testing.T) {
	bothModes(t, mem.Options{}, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		var once atomic.Bool
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "list" && once.CompareAndSwap(false, true) {
				a.clock.jump(2 * time.Minute) // the process was stopped meanwhile
			}
			return err
		})
		k := a.takes(t, mode)
		if left := k.Deadline() - a.clock.Elapsed(); left < 50*time.Second {
			t.Errorf("acquired with a lease of which %v is left", left)
		}
		if n := len(w.keys()); n != int(mode) { // one flag, and lock.exclusive
			t.Errorf("%d objects: %v", n, w.keys())
		}
	})
}

// delayed makes each request take so long. The request is applied after half of that.
func (m *machine) delayed(trip time.Duration) {
	m.hooks.Before(func(context.Context, hookstore.Request) error { time.Sleep(trip / 2); return nil })
	m.hooks.After(func(_ context.Context, _ hookstore.Request, err error) error { time.Sleep(trip / 2); return err })
}

// TestRefusedExclusiveHindersNoShared: shared acquirers that come while an exclusive one is
// being refused all get in, and a shared holder of any age refuses an exclusive acquirer.
func TestRefusedExclusiveHindersNoShared(t *testing.T) {
	for _, trip := range []time.Duration{time.Millisecond, 40 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		for _, age := range []time.Duration{0, 500 * time.Millisecond, 2 * time.Second, 20 * time.Second, 50 * time.Second} {
			sub(t, fmt.Sprintf("%v a round trip, a holder of %v", trip, age), mem.Options{}, func(t *testing.T, w *world) {
				holder := w.machine().takes(t, Shared)
				time.Sleep(age)
				errs := make(chan error)
				prune := w.machine()
				prune.delayed(trip)
				go func() {
					prune.refused(t, Exclusive)
					errs <- nil
				}()
				const backups = 8
				for n := range time.Duration(backups) {
					m := w.machine()
					m.delayed(trip)
					go func() {
						time.Sleep(n * 4 * trip / backups)
						k, err := m.Shared(t.Context(), "backup")
						if err == nil {
							time.Sleep(10 * time.Second)
							k.Release(t.Context())
						}
						errs <- err
					}()
				}
				for range backups + 1 {
					if err := <-errs; err != nil {
						t.Error(err)
					}
				}
				holder.Release(t.Context())
				w.empty()
			})
		}
	}
}

// TestPointerIsTakenDownAtOnce: clients of the original protocol look only at lock.exclusive.
// So an exclusive acquirer deletes it as soon as a look shows a live shared lock, although the
// acquirer looks again.
func TestPointerIsTakenDownAtOnce(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.machine().takes(t, Shared)
		a := w.machine()
		a.delayed(10 * time.Millisecond)
		var mu sync.Mutex
		var requests []string
		a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			time.Sleep(5 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			requests = append(requests, r.Op)
			return err
		})
		a.refused(t, Exclusive)
		mu.Lock()
		defer mu.Unlock()
		want := "[put put list get delete list list list list delete]" // the holder's body
		if got := fmt.Sprint(requests); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// TestPointerComesBack: an exclusive acquirer that has taken lock.exclusive down for a shared
// one that is about to withdraw puts it there again before it holds the lock.
func TestPointerComesBack(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		key := "index/lock.shared/2026-03-07T09:00:00Z"
		w.put(key, foreign(time.Now(), true))
		go func() {
			time.Sleep(200 * time.Millisecond)
			w.delete(key)
		}()
		k := w.machine().takes(t, Exclusive)
		if len(w.keys()) != 2 {
			t.Errorf("held with %v", w.keys())
		}
		k.Release(t.Context())
		w.empty()
	})
}

// TestSharedYieldsInTime: if an intent is only acquiring, a shared acquirer looks again for a
// few seconds. It yields at once to a holder that has refreshed its lock, to a waiter, to an
// old intent, and to another client's.
func TestSharedYieldsInTime(t *testing.T) {
	yields := func(t *testing.T, w *world, least, most time.Duration) {
		t.Helper()
		began := time.Now()
		w.machine().refused(t, Shared)
		if took := time.Since(began); took < least || took > most {
			t.Errorf("refused after %v, want %v to %v", took, least, most)
		}
	}
	for _, c := range []struct {
		age         time.Duration
		least, most time.Duration
	}{
		{0, time.Second, 4 * time.Second}, {2 * time.Second, time.Second, 4 * time.Second},
		{10 * time.Second, 0, 0}, {31 * time.Second, 0, 0},
	} {
		sub(t, fmt.Sprint("held for ", c.age), mem.Options{}, func(t *testing.T, w *world) {
			w.machine().takes(t, Exclusive)
			time.Sleep(c.age)
			yields(t, w, c.least, c.most)
		})
	}
	sub(t, "another client's", mem.Options{}, func(t *testing.T, w *world) {
		w.put(pointer, foreign(time.Now(), false))
		yields(t, w, 0, 0)
	})
	sub(t, "a ticket", mem.Options{}, func(t *testing.T, w *world) {
		backup, _, prune := w.queued(t, time.Minute)
		time.Sleep(2 * time.Second) // its first attempt is over
		later := w.machine()
		later.refused(t, Exclusive)
		if _, by := later.hooks.Count(); by["list"] != 1 {
			t.Errorf("an exclusive one waits for a waiter to withdraw: %v", by)
		}
		time.Sleep(3 * time.Second)
		yields(t, w, 0, 0)
		backup.Release(t.Context())
		prune.got(t).Release(t.Context())
	})
}

// TestOneOfExclusiveAndSharedWins: one of the two gets in at any distance from the store.
func TestOneOfExclusiveAndSharedWins(t *testing.T) {
	for name, opts := range map[string]mem.Options{"kept": {}, "none": lacking} {
		for _, trips := range [][2]time.Duration{
			{time.Millisecond, time.Millisecond}, {200 * time.Millisecond, 200 * time.Millisecond}, {time.Second, time.Second}, {2 * time.Second, 2 * time.Second},
			{time.Second, 1500 * time.Millisecond}, {1500 * time.Millisecond, time.Second},
		} {
			nobody := 0
			for i := range 60 {
				bubble(t, opts, func(t *testing.T, w *world) {
					a, b := w.machine(), w.machine()
					a.delayed(trips[0])
					b.delayed(trips[1])
					head := time.Duration(i-30) * trips[0] / 10
					if winners(t, isHeld, contender{a, Exclusive, max(-head, 0)}, contender{b, Shared, max(head, 0)}) == 0 {
						nobody++
					}
				})
			}
			if nobody > 0 {
				t.Errorf("%s, %v a round trip: no client won %d of 60 times", name, trips, nobody)
			}
		}
	}
}

// TestLocksOfOneLocker: locks that one Locker has taken know nothing of each other. They exclude
// each other as those of two processes do; one is released while the other is refreshed; one that
// was lost is resumed while the other is held.
func TestLocksOfOneLocker(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m := w.machine()
		first := m.takes(t, Shared)
		second := m.takes(t, Shared)
		m.refused(t, Exclusive)

		mustRelease(t, first)
		time.Sleep(2 * DefaultTTL)
		if !alive(second) {
			t.Fatalf("lost with the release of the other: %v", second.Lost())
		}
		m.refused(t, Exclusive)

		m.lose(t, second)
		m.hooks.Before(nil)
		third := m.takes(t, Shared)
		resumed := mustResume(t, second)
		if !alive(third) {
			t.Errorf("lost with the resumption of the other: %v", third.Lost())
		}
		for _, k := range []*Lock{resumed, third} {
			mustRelease(t, k)
		}
		w.empty()
	})
}
