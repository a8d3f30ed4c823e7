package replock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestBrokenTicketIsPutAgain: a waiter whose ticket was broken keeps its turn. It puts the
// ticket again when a poll whose listing no live lock cuts short lacks it, and doesn't wait
// for the ticket's refresh.
func TestBrokenTicketIsPutAgain(t *testing.T) {
	for _, live := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { brokenTicket(t, live) })
	}
}

// brokenTicket breaks a ticket behind a lock that is live, or one that is watched.
func brokenTicket(t *testing.T, live bool) {
	w := newWorld(t, mem.Options{NoStoreClock: true})
	a, b, c := w.machine(), w.machine(), w.machine()
	end := func() {}
	if live {
		k, err := a.Shared(t.Context(), "holder")
		mustLock(t, k, err)
		end = func() { k.Release(t.Context()) }
	} else {
		w.put("index/lock.shared/x", []byte("\x01 encrypted"))
	}
	prune := b.wants(t, Exclusive, Forever)
	time.Sleep(3 * time.Second)
	tickets := w.tickets()
	if len(tickets) != 1 {
		t.Fatalf("tickets: %v", tickets)
	}
	infos, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if i.State != StateWaiting {
			continue
		}
		if broken, err := c.Break(t.Context(), BreakOptions{ID: i.ID}); err != nil || len(broken) != 1 {
			t.Fatalf("broken: %v %v", broken, err)
		}
	}
	if left := w.tickets(); len(left) != 0 {
		t.Fatalf("left: %v", left)
	}
	time.Sleep(12 * time.Second)
	if again := w.tickets(); len(again) != 1 || again[0] != tickets[0] {
		t.Errorf("tickets are %v, and were %v", again, tickets)
	}
	other, err := c.Shared(t.Context(), "backup")
	if err == nil {
		t.Errorf("another comes before it")
		other.Release(t.Context())
	}
	prune.waits(t)
	end()
	prune.got(t).Release(t.Context())
	w.empty()
}

// TestStaleTicketBehindIsReaped: a waiter ignores the tickets behind its own, and removes
// those of dead waiters, since no other process looks at them.
func TestStaleTicketBehindIsReaped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		k, b, prune := w.queued(t, Forever)
		time.Sleep(time.Second)
		c := w.machine()
		behind := c.wants(t, Exclusive, Forever)
		time.Sleep(5 * time.Second)
		if tickets := w.tickets(); len(tickets) != 2 {
			t.Fatalf("tickets: %v", tickets)
		}
		c.hooks.Before(func(ctx context.Context, _ hookstore.Request) error { <-ctx.Done(); return ctx.Err() })
		behind.cancel(nil)
		<-behind.done
		time.Sleep(2 * DefaultTTL)
		if tickets := w.tickets(); len(tickets) != 2 {
			t.Fatalf("tickets, of which one is stale: %v", tickets)
		}
		k.Release(t.Context())
		lock := prune.got(t)
		synctest.Wait() // b sees the release
		if tickets := w.tickets(); len(tickets) > 0 || b.saw(EventReaped) != 1 {
			t.Errorf("left: %v, reaped %d", tickets, b.saw(EventReaped))
		}
		lock.Release(t.Context())
		w.empty()
	})
}

// TestTicketOnALaterPage: a waiter knows the store's time although its ticket is old, and its
// polls see the ticket for the first time when all locks before it are gone.
func TestTicketOnALaterPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{PageSize: 2})
		a, b := w.machine(), w.machine(func(o *Options) { o.TTL = 10 * time.Minute })
		dead, err := a.Exclusive(t.Context(), "dead")
		mustLock(t, dead, err)
		body, _, err := w.mem.Get(t.Context(), dead.Key(), maxBody)
		if err != nil {
			t.Fatal(err)
		}
		w.put(dead.Key()+"a", body) // on the ticket's page
		a.hooks.Before(outage)
		b.hooks.Store = untimed{w.mem}
		began := time.Now()
		time.Sleep(time.Second) // the ticket is behind both
		prune := b.wants(t, Exclusive, 9*time.Minute)
		lock := prune.got(t)
		if took := time.Since(began); took > DefaultTTL+margin+lastPoll*3/2+time.Second {
			t.Errorf("it passed the dead lock after %v", took)
		}
		lock.Release(t.Context())
		dead.Release(t.Context())
	})
}

// untimed is a store whose puts don't return when they were applied, as S3's don't.
type untimed struct{ store.Store }

func (u untimed) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	o, err := u.Store.Put(ctx, key, body, opts)
	o.ModTime = time.Time{}
	return o, err
}

// TestWaitersPassInTheirOrder: a ticket keeps out later exclusive acquirers, and every shared
// one.
func TestWaitersPassInTheirOrder(t *testing.T) {
	for _, c := range []struct {
		state  State
		before bool
		mode   Mode
		held   bool
	}{
		{StateWaiting, true, Exclusive, true}, {StateWaiting, false, Exclusive, false},
		{StateAcquiring, true, Exclusive, true}, {StateAcquiring, false, Exclusive, true},
		{StateHeld, false, Exclusive, true},
		{StateWaiting, true, Shared, true}, {StateWaiting, false, Shared, true},
	} {
		do(t, func(t *testing.T, w *world) {
			o, m := w.machine(), w.machine()
			tr, _ := o.newTry(Exclusive, "prune", nothingYet())
			tr.body.State = c.state
			o.date(tr)
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
