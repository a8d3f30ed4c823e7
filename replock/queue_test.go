package replock

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/cloudsticlock"
)

// TestWaitingSharedComesNext: a waiting shared acquirer comes before all exclusive ones that came
// later, however many there are, and whether they wait or not.
func TestWaitingSharedComesNext(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, err := w.machine().Exclusive(t.Context(), "first")
		mustLock(t, k, err)
		first := w.machine().wants(t, Exclusive, Forever)
		time.Sleep(10 * time.Second)
		shared := w.machine().wants(t, Shared, Forever)
		var (
			mu    sync.Mutex
			order []string
			all   sync.WaitGroup
		)
		serve := func(name string, p *pendingAcquire) {
			all.Go(func() {
				lock := p.got(t)
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				time.Sleep(time.Minute)
				lock.Release(t.Context())
			})
		}
		serve("first", first)
		serve("shared", shared)
		for range 5 {
			time.Sleep(5 * time.Second)
			serve("later", w.machine().wants(t, Exclusive, Forever))
		}
		k.Release(t.Context())
		time.Sleep(30 * time.Second)
		other, err := w.machine().Exclusive(t.Context(), "at once")
		mustHeld(t, other, err)
		all.Wait()
		if want := []string{"first", "shared", "later", "later", "later", "later", "later"}; !slices.Equal(order, want) {
			t.Errorf("served in the order %v", order)
		}
		w.empty()
	})
}

// TestSharedQueue: waiters of both modes are served in the order in which they came, and shared ones
// that come together hold their locks together.
func TestSharedQueue(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, err := w.machine().Exclusive(t.Context(), "first")
		mustLock(t, k, err)
		time.Sleep(10 * time.Second) // it can't be about to withdraw
		var (
			mu    sync.Mutex
			order []string
			all   sync.WaitGroup
		)
		for i, mode := range []Mode{Shared, Shared, Exclusive, Shared, Exclusive, Exclusive, Shared} {
			p := w.machine().wants(t, mode, Forever)
			time.Sleep(time.Second) // their wall clocks agree to within that
			all.Go(func() {
				lock := p.got(t)
				mu.Lock()
				order = append(order, fmt.Sprint(i))
				mu.Unlock()
				time.Sleep(time.Minute)
				lock.Release(t.Context())
			})
		}
		k.Release(t.Context())
		all.Wait()
		slices.Sort(order[:2])
		if want := []string{"0", "1", "2", "3", "4", "5", "6"}; !slices.Equal(order, want) {
			t.Errorf("served in the order %v", order)
		}
		w.empty()
	})
}

// TestSharedTicketIsNoLockToOthers: to clients of the original protocol a shared waiter's ticket has
// expired.
func TestSharedTicketIsNoLockToOthers(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, err := w.machine().Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		wait := w.machine().wants(t, Shared, Forever)
		time.Sleep(10 * time.Minute)
		if tickets := w.tickets(); len(tickets) != 1 {
			t.Fatalf("tickets: %v", tickets)
		}
		if err := w.mem.Delete(t.Context(), "index/lock.exclusive"); err != nil { // the only other lock that they look at
			t.Fatal(err)
		}
		c := w.machine()
		c.clock.setSkew(-24 * time.Hour)
		other, err := (&cloudsticlock.Locker{Store: w.mem, Clock: c.clock, Holder: "c"}).Exclusive(t.Context(), "prune")
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		_ = other.Release(t.Context())
		k.Release(t.Context())
		wait.got(t).Release(t.Context())
	})
}

// TestOlderTicketsComeFirst: a shared waiter has no ticket while that of an older version is before
// it, which takes it for a lock. Otherwise each would wait for the other.
func TestOlderTicketsComeFirst(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, err := w.machine().Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		wait := w.machine().wants(t, Shared, Forever)
		time.Sleep(time.Minute)
		if tickets := w.tickets(); len(tickets) != 1 {
			t.Fatalf("tickets: %v", tickets)
		}
		o := w.machine()
		old, err := o.newTry(Exclusive, "prune", nothingYet())
		if err != nil {
			t.Fatal(err)
		}
		old.body.State = StateWaiting
		o.date(old)
		key := o.keys.flag(Exclusive, time.Now().Add(-time.Hour), old.id)
		w.put(key, old.body.encode())
		time.Sleep(30 * time.Second)
		if tickets := w.tickets(); !slices.Equal(tickets, []string{key}) {
			t.Errorf("tickets: %v", tickets)
		}
		if err := w.mem.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if tickets := w.tickets(); len(tickets) != 1 || tickets[0] == key {
			t.Errorf("afterwards: %v", tickets)
		}
		k.Release(t.Context())
		wait.got(t).Release(t.Context())
		w.empty()
	})
}
