package replock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/mem"
)

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
			t.Run(fmt.Sprintf("%v a round trip, a holder of %v", trip, age), func(t *testing.T) {
				do(t, func(t *testing.T, w *world) {
					holder, err := w.machine().Shared(t.Context(), "backup")
					mustLock(t, holder, err)
					time.Sleep(age)
					errs := make(chan error)
					prune := w.machine()
					prune.delayed(trip)
					go func() {
						k, err := prune.Exclusive(t.Context(), "prune")
						mustHeld(t, k, err)
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
			})
		}
	}
}

// TestPointerIsTakenDownAtOnce: clients of the original protocol look only at lock.exclusive.
// So an exclusive acquirer deletes it as soon as a look shows a live shared lock, although the
// acquirer looks again.
func TestPointerIsTakenDownAtOnce(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		holder, err := w.machine().Shared(t.Context(), "backup")
		mustLock(t, holder, err)
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
		k, err := a.Exclusive(t.Context(), "prune")
		mustHeld(t, k, err)
		mu.Lock()
		defer mu.Unlock()
		want := "[put put list get delete list list list list delete]" // the holder's body
		if got := fmt.Sprint(requests); got != want {
			t.Errorf("%v, want %v", got, want)
		}
		holder.Release(t.Context())
	})
}

// TestPointerComesBack: an exclusive acquirer that has taken lock.exclusive down for a shared
// one that is about to withdraw puts it there again before it holds the lock.
func TestPointerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		key := "index/lock.shared/2026-03-07T09:00:00Z"
		w.put(key, foreign(time.Now(), true))
		go func() {
			time.Sleep(200 * time.Millisecond)
			w.mem.Delete(context.Background(), key)
		}()
		k, err := w.machine().Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
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
		k, err := w.machine().Shared(t.Context(), "backup")
		mustHeld(t, k, err)
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
		t.Run(fmt.Sprint("held for ", c.age), func(t *testing.T) {
			do(t, func(t *testing.T, w *world) {
				k, err := w.machine().Exclusive(t.Context(), "prune")
				mustLock(t, k, err)
				time.Sleep(c.age)
				yields(t, w, c.least, c.most)
				k.Release(t.Context())
			})
		})
	}
	t.Run("another client's", func(t *testing.T) {
		do(t, func(t *testing.T, w *world) {
			w.put(pointer, foreign(time.Now(), false))
			yields(t, w, 0, 0)
		})
	})
	t.Run("a ticket", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{})
			backup, _, prune := w.queued(t, time.Minute)
			time.Sleep(5 * time.Second) // its first attempt is over
			yields(t, w, 0, 0)
			backup.Release(t.Context())
			prune.got(t).Release(t.Context())
		})
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
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, opts)
					won := make(chan *Lock, 2)
					for n, mode := range []Mode{Exclusive, Shared} {
						a := w.machine()
						a.delayed(trips[n])
						go func() {
							time.Sleep(time.Duration(n) * time.Duration(i-30) * trips[0] / 10)
							if n == 0 && i < 30 {
								time.Sleep(time.Duration(30-i) * trips[0] / 10)
							}
							k, err := a.acquire(t.Context(), mode, "x")
							if err != nil {
								mustHeld(t, k, err)
							}
							won <- k
						}()
					}
					k, other := <-won, <-won
					if k == nil && other == nil {
						nobody++
					}
					for _, k := range []*Lock{k, other} {
						if k != nil {
							k.Release(t.Context())
						}
					}
				})
			}
			if nobody > 0 {
				t.Errorf("%s, %v a round trip: no client won %d of 60 times", name, trips, nobody)
			}
		}
	}
}
