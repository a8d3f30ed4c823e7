package replock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// TestOwnFlagMustBeListed: a lock isn't granted if the listing lacks its own flag.
func TestOwnFlagMustBeListed(t *testing.T) {
	bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		a.hooks.After(answered("put", "/", func(r hookstore.Request) {
			if r.Key != pointer {
				w.delete(r.Key)
			}
		}))
		a.fails(t, mode, ErrUnsure)
	})
}

// TestStaleLockIsPassedOnlyOnceDeleted: an acquirer that can't delete a stale lock doesn't pass it.
func TestStaleLockIsPassedOnlyOnceDeleted(t *testing.T) {
	eachOf(t, []Mode{Shared, Exclusive}, func(t *testing.T, w *world, mode Mode) {
		key := map[Mode]string{Exclusive: "index/lock.shared/x", Shared: "index/lock.intent/x"}[mode]
		w.put(key, foreign(time.Now(), mode == Exclusive))
		time.Sleep(2 * time.Minute)
		a := w.machine()
		a.hooks.Before(inTurn(fails("delete", key, store.ErrPermission), fails("put", key, store.ErrPermission)))
		assert.Says(t, a.fails(t, mode, store.ErrPermission), store.ErrPermission, key)
		a.hooks.Before(nil)
		a.takes(t, mode)
		assert.That(t, mode != Shared || !slices.Contains(w.keys(), key), "passed %s and left it", key)
	})
}

// TestNoLockWithoutRandomness: a failing source of randomness is an error, not a lock with a guessable name.
func TestNoLockWithoutRandomness(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		a.rand = io.LimitReader(nil, 0)
		a.fails(t, Shared, io.EOF)
	})
}

// TestTriesAreCounted: three tries in a row that are too late end an acquire, or two on a store that is too
// slow. A conflicting lock, for which it waits, resets the count.
func TestTriesAreCounted(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		for _, errs := range [][]error{{errLate, errLate, errLate}, {errLate, ErrSlow}, {errLate, errLate, ErrHeld, errLate, errLate, errLate}, {ErrSlow, errDoubt, ErrSlow, ErrSlow}} {
			a := decider{l: w.machine().Locker}
			for n, err := range errs {
				want := startAgain
				if n == len(errs)-1 {
					want = giveUp
				} else if err == ErrHeld || err == errDoubt {
					want = queueUp
				}
				next := a.afterAttempt(&attempt{deadline: Forever}, err, true)
				equal(t, fmt.Sprint(errs, " step after ", n+1), next.step, want)
			}
		}
	})
}

// TestFirstRequestIsNoPut: where a put might create the bucket, a listing comes before the first one, and fails if there
// is no bucket.
func TestFirstRequestIsNoPut(t *testing.T) {
	bothModes(t, memory.Options{PutCreates: true}, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		a.hooks.Before(fails("list", "", store.ErrNotFound))
		a.fails(t, mode, store.ErrNotFound)
		a.sent(t, between{"put": {0, 0}})
		a.hooks.Before(fails("list", "", errOutage))
		began := time.Now()
		a.fails(t, mode, errOutage)
		took(t, began, 2*time.Second, 11*time.Second)
		a.hooks.Before(nil)
		for _, lists := range []int{2, 1} {
			a.hooks.Count()
			k := a.takes(t, mode)
			a.sent(t, between{"list": {lists, lists}})
			mustRelease(t, k)
		}
	})
}

// TestLeaseIsDatedFromTheSend: a lease is dated from when its put was sent, not from its answer.
func TestLeaseIsDatedFromTheSend(t *testing.T) {
	bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		a.hooks.After(lateAnswer("put", "", 7*time.Second))
		start := a.clock.Elapsed()
		k := a.takes(t, mode)
		equal(t, "the deadline after the first send", k.lease.Deadline()-start, 55*time.Second)
	})
}

func TestEachNameIsItsOwnLock(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		for _, name := range []string{"", "a", "b"} {
			m, _ := w.holder(t, Exclusive, func(o *Options) { o.Name = name })
			m.refused(t, Shared) // also in the holder's own process
		}
		w.machine(func(o *Options) { o.Name = "a" }).refused(t, Shared)
	})
}

// TestListingOutweighsA404: a lock that LIST shows is held, although GET answers 404.
func TestListingOutweighsA404(t *testing.T) {
	conflicts(t, func(t *testing.T, w *world, first, second Mode) {
		b := w.machine()
		k := w.machine().takes(t, first)
		time.Sleep(time.Second)
		b.hooks.Before(fails("get", "", store.ErrNotFound))
		b.refused(t, second)
		_, by := b.hooks.Count()
		assert.That(t, by["list"] == 1+maxAgain && alive(k), "%v; lost: %v", by, k.Lost())
	})
}

// TestEmptyAnswerIsNoRelease: an empty answer to a GET doesn't count as a released lock if LIST gave a size.
func TestEmptyAnswerIsNoRelease(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.machine().takes(t, Exclusive)
		b := w.machine()
		b.store = emptyGets{b.hooks}
		b.refused(t, Shared)
	})
}

type emptyGets struct{ store.Store }

func (s emptyGets) Get(ctx context.Context, key string, n int64) ([]byte, store.Object, error) {
	_, o, err := s.Store.Get(ctx, key, n)
	return nil, o, err
}

// TestSightNoticesChanges: a change of the ETag, the mod time or the size is noticed.
func TestSightNoticesChanges(t *testing.T) {
	was := store.Object{Key: "k", ETag: "1", ModTime: time.Now(), Size: 1}
	etag, date, size := was, was, was
	etag.ETag, date.ModTime, size.Size = "2", was.ModTime.Add(1), 2
	for _, is := range []store.Object{etag, date, size} {
		s := verdict.Memory{}
		s.See(was, wire.KindShared, time.Second)
		for _, now := range []time.Duration{2 * time.Second, 3 * time.Second} {
			e := s.See(is, wire.KindShared, now)
			assert.That(t, e.Since == 2*time.Second, "%+v: seen since %v at %v", is, e.Since, now)
		}
	}
}

// TestUnreadLockIsNeverPassed: a body that can't be fetched is held while it is young, and then a failure of the store.
func TestUnreadLockIsNeverPassed(t *testing.T) {
	for _, failure := range []error{errOutage, store.ErrPermission} {
		eachOf(t, []time.Duration{50 * time.Second, 61 * time.Second, time.Hour}, func(t *testing.T, w *world, age time.Duration) {
			w.put("index/lock.shared/x", foreign(time.Now(), true))
			time.Sleep(age)
			a := w.machine()
			a.hooks.Before(fails("get", "", failure))
			want, other := failure, ErrHeld
			if age < DefaultTTL {
				want, other = ErrHeld, failure
			}
			err := a.fails(t, Exclusive, want)
			assert.That(t, !errors.Is(err, other), "%v old, %v: %v", age, failure, err)
		})
	}
}

// contender is an acquirer that starts a while after the others.
type contender struct {
	*machine
	mode  Mode
	after time.Duration
}

func heldOrSlow(err error) bool { return errors.Is(err, ErrHeld) || errors.Is(err, ErrSlow) }

// varied makes each request take a round trip, give or take a quarter of it.
func (m *machine) varied(trip time.Duration) {
	m.paces(func() time.Duration { return trip/4 + m.jitter(trip/4) })
}

// paces delays each request before it is applied and before it is answered.
func (m *machine) paces(d func() time.Duration) {
	m.hooks.Before(func(context.Context, hookstore.Request) error { time.Sleep(d()); return nil })
	m.hooks.After(func(_ context.Context, _ hookstore.Request, err error) error { time.Sleep(d()); return err })
}

// backup is work under a shared lock, which must be acquired.
func (m *machine) backup(t *testing.T, takes time.Duration) func() {
	return func() {
		assert.OK(t, m.Do(t.Context(), Shared, "backup", func(context.Context) error { time.Sleep(takes); return nil }, WithWait(0)))
	}
}

// delayed makes each request take so long. The request is applied after half of that.
func (m *machine) delayed(trip time.Duration) {
	m.paces(func() time.Duration { return trip / 2 })
}

// TestRefusedExclusiveHindersNoShared: shared acquirers acquire beside an exclusive one that a shared holder blocks.
func TestRefusedExclusiveHindersNoShared(t *testing.T) {
	const backups = 8
	for _, trip := range []time.Duration{time.Millisecond, 40 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		ages := []time.Duration{0, 500 * time.Millisecond, 2 * time.Second, 20 * time.Second, 50 * time.Second}
		eachOf(t, ages, func(t *testing.T, w *world, age time.Duration) {
			holder := w.machine().takes(t, Shared)
			time.Sleep(age)
			var wg sync.WaitGroup
			prune := w.machine()
			prune.delayed(trip)
			wg.Go(func() { prune.refused(t, Exclusive) })
			for n := range time.Duration(backups) {
				m := w.machine()
				m.delayed(trip)
				wg.Go(func() {
					time.Sleep(n * 4 * trip / backups)
					m.backup(t, 10*time.Second)()
				})
			}
			wg.Wait()
			w.leavesNothing(holder)
		})
	}
}

// TestPointerIsTakenDownAtOnce: clients of the original protocol look only at lock.exclusive. So an exclusive
// acquirer deletes it as soon as a look shows a live shared lock, although the acquirer looks again.
func TestPointerIsTakenDownAtOnce(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.machine().takes(t, Shared)
		a := w.machine()
		var requests notes[string]
		a.hooks.Before(slow("", "", 5*time.Millisecond))
		a.hooks.After(answered("", "", func(r hookstore.Request) { time.Sleep(5 * time.Millisecond); requests.add(r.Op) }))
		a.refused(t, Exclusive)
		want := "[put list get delete list delete]" // the holder's body
		equal(t, "requests, without repetitions", fmt.Sprint(slices.Compact(requests.got())), want)
	})
}

// TestNoClaimAfterAFailedDelete: if the store fails to delete lock.exclusive after a look that shows a shared lock, the
// acquirer gives up, even if that lock is gone. The store might still apply the delete, to a lock.exclusive that the
// acquirer would put then.
func TestNoClaimAfterAFailedDelete(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, a := w.machine().takes(t, Shared), w.machine()
		a.hooks.Before(first("delete", pointer, func(hookstore.Request) error {
			w.delete(k.Key())
			return errOutage
		}))
		a.refused(t, Exclusive)
		w.empty()
	})
}

// TestSharedYieldsInTime: if an intent is only acquiring, a shared acquirer looks again. A holder's flag says after a
// second that it is held. A shared acquirer yields at once to that, to a waiter, and to another client's lock.
func TestSharedYieldsInTime(t *testing.T) {
	yields := func(t *testing.T, w *world, least, most time.Duration, change ...func(*Options)) {
		t.Helper()
		began := time.Now()
		w.machine(change...).refused(t, Shared)
		took(t, began, least, most)
	}
	for age, c := range map[time.Duration]struct{ least, most time.Duration }{
		0: {time.Second, 4 * time.Second}, 2 * time.Second: {}, 10 * time.Second: {}, 31 * time.Second: {},
	} {
		sub(t, fmt.Sprint("held for ", age), memory.Options{}, func(t *testing.T, w *world) {
			w.machine().takes(t, Exclusive)
			time.Sleep(age)
			yields(t, w, c.least, c.most)
		})
	}
	sub(t, "died while acquiring", memory.Options{}, func(t *testing.T, w *world) {
		m, _ := w.holder(t, Exclusive, func(o *Options) { o.TTL = 24 * time.Hour })
		m.hooks.Before(outage)
		yields(t, w, 7*time.Second, 9*time.Second, func(o *Options) { o.TTL = MinTTL })
		yields(t, w, verdict.Undecided-10*time.Second, verdict.Undecided)
		time.Sleep(time.Second)
		yields(t, w, 0, 0)
	})
	sub(t, "another client's", memory.Options{}, func(t *testing.T, w *world) {
		w.put(pointer, foreign(time.Now(), false))
		yields(t, w, 0, 0)
	})
	sub(t, "a ticket", memory.Options{}, func(t *testing.T, w *world) {
		backup, _, prune := w.queued(t, time.Minute)
		time.Sleep(2 * time.Second) // its first attempt is over
		later := w.machine()
		later.refused(t, Exclusive)
		later.sent(t, between{"list": {1, 1}})
		time.Sleep(3 * time.Second)
		yields(t, w, 0, 0)
		backup.Release(t.Context())
		prune.got(t).Release(t.Context())
	})
}

// oneWins makes two contenders meet n times at each distance from the store. One of them must win each time, and the
// other one fails as allowed reports.
func oneWins(t *testing.T, opts kinds, n int, allowed func(error) bool, trips [][2]time.Duration,
	meet func(a, b *machine, trips [2]time.Duration, i int) (x, y contender)) {
	for name, opts := range opts {
		for _, trips := range trips {
			for i := range n {
				bubble(t, opts, func(t *testing.T, w *world) {
					x, y := meet(w.machine(), w.machine(), trips, i)
					var got notes[*Lock]
					var wg sync.WaitGroup
					for _, c := range []contender{x, y} {
						wg.Go(func() {
							time.Sleep(c.after)
							if k, err := c.lock(t.Context(), c.mode, "x"); err == nil {
								got.add(k)
							} else {
								assert.That(t, allowed(err), "%v", err)
							}
						})
					}
					wg.Wait()
					assert.That(t, len(got.got()) != 0, "%s, %v a round trip: no client won at the %d. of %d meetings", name, trips, i, n)
					for _, k := range got.got() {
						k.Release(t.Context())
					}
				})
			}
		}
	}
}

// alike are two clients that are as far from the store as each other.
func alike(trips ...time.Duration) (both [][2]time.Duration) {
	for _, trip := range trips {
		both = append(both, [2]time.Duration{trip, trip})
	}
	return both
}

// TestOneWinsOnABusyMachine: one of two acquirers succeeds although some requests take hundreds of times as long as
// others, and up to six seconds.
func TestOneWinsOnABusyMachine(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		oneWins(t, threeKinds, 200, heldOrSlow, alike(time.Second, 2*time.Second, 3*time.Second), func(a, b *machine, most [2]time.Duration, i int) (x, y contender) {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(most[0])))
			var mu sync.Mutex // guards rng
			busy := func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				if rng.IntN(2) == 0 {
					return 10 * time.Millisecond
				}
				return time.Duration(rng.Int64N(int64(most[0])))
			}
			a.paces(busy)
			b.paces(busy)
			return contender{a, Exclusive, 0}, contender{b, mode, time.Duration(i-66) * 20 * time.Millisecond}
		})
	}
}

// TestOneOfExclusiveAndSharedWins: one of the two succeeds at any distance from the store.
func TestOneOfExclusiveAndSharedWins(t *testing.T) {
	trips := append(alike(time.Millisecond, 200*time.Millisecond, time.Second, 2*time.Second),
		[][2]time.Duration{{time.Second, 1500 * time.Millisecond}, {1500 * time.Millisecond, time.Second}}...)
	isHeld := func(err error) bool { _, ok := err.(*HeldError); return ok } // refused by a lock that the error names
	oneWins(t, kinds{"kept": {}, "none": lacking}, 60, isHeld, trips, func(a, b *machine, trips [2]time.Duration, i int) (x, y contender) {
		a.delayed(trips[0])
		b.delayed(trips[1])
		head := time.Duration(i-30) * trips[0] / 10
		return contender{a, Exclusive, max(-head, 0)}, contender{b, Shared, max(head, 0)}
	})
}

// TestOneOfTwoContendersWins: one of two exclusive contenders succeeds at any distance from the store.
func TestOneOfTwoContendersWins(t *testing.T) {
	trips := append(alike(10*time.Millisecond, 200*time.Millisecond, time.Second, 2*time.Second, 3300*time.Millisecond),
		[][2]time.Duration{{time.Second, 1500 * time.Millisecond}, {2 * time.Second, 3 * time.Second}}...)
	oneWins(t, threeKinds, 100, heldOrSlow, trips, func(a, b *machine, trips [2]time.Duration, i int) (x, y contender) {
		a.varied(trips[0])
		b.varied(trips[1])
		return contender{a, Exclusive, 0}, contender{b, Exclusive, time.Duration(i) * 2 * trips[0] / 100}
	})
}
