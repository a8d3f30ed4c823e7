package replock

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
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

// pendingAcquire is an acquire that runs in a goroutine.
type pendingAcquire struct {
	lock   *Lock
	err    error
	took   time.Duration
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// wants makes a machine acquire a lock, and returns once it waits or is done.
func (m *machine) wants(t *testing.T, mode Mode, wait time.Duration, opts ...AcquireOption) *pendingAcquire {
	ctx, cancel := context.WithCancelCause(t.Context())
	p := &pendingAcquire{cancel: cancel, done: make(chan struct{})}
	start := time.Now()
	go func() {
		defer close(p.done)
		p.lock, p.err = m.acquire(ctx, mode, "waits", append(opts, Wait(wait))...)
		p.took = time.Since(start)
	}()
	synctest.Wait()
	return p
}

// queued makes one machine wait for the exclusive lock behind a backup of another.
func (w *world) queued(t *testing.T, wait time.Duration) (backup *Lock, waiter *machine, prune *pendingAcquire) {
	t.Helper()
	backup, err := w.machine().Shared(t.Context(), "backup")
	mustLock(t, backup, err)
	waiter = w.machine()
	return backup, waiter, waiter.wants(t, Exclusive, wait)
}

func (p *pendingAcquire) got(t *testing.T) *Lock {
	t.Helper()
	<-p.done
	return mustLock(t, p.lock, p.err)
}

func (p *pendingAcquire) waits(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
		t.Fatalf("it doesn't wait: %v, %v", p.lock != nil, p.err)
	default:
	}
}

// tickets returns the bodies in the store with the state "waiting".
func (w *world) tickets() (keys []string) {
	for _, key := range w.keys() {
		if raw, _, err := w.mem.Get(context.Background(), key, maxBody); err == nil {
			if l, err := decode(raw); err == nil && l.State == StateWaiting {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// TestReleaseLetsAWaiterIn: a waiter gets in within 2 s of the release, or within 10 s after a long wait.
func TestReleaseLetsAWaiterIn(t *testing.T) {
	for _, long := range []time.Duration{5 * time.Second, rounds.Fewer(3*time.Hour, 10*time.Minute)} {
		for _, first := range []Mode{Shared, Exclusive} {
			eachMode(t, func(t *testing.T, w *world, mode Mode) {
				if first == Shared && mode == Shared {
					return
				}
				a, b := w.machine(), w.machine()
				k, err := a.acquire(t.Context(), first, "x")
				mustLock(t, k, err)
				wait := b.wants(t, mode, Forever)
				time.Sleep(long)
				wait.waits(t)
				k.Release(t.Context())
				synctest.Wait()
				released := time.Now()
				other := wait.got(t)
				if took, most := time.Since(released), min(long, 10*time.Second); took > most+100*time.Millisecond {
					t.Errorf("let in %v after the release", took)
				}
				if tickets := w.tickets(); len(tickets) > 0 {
					t.Errorf("left: %v", tickets)
				}
				other.Release(t.Context())
				w.empty()
			})
		}
	}
}

// TestWaitingExclusiveComesNext: a waiting exclusive acquirer comes before all later ones,
// shared ones too.
func TestWaitingExclusiveComesNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		c := w.machine()
		k, _, prune := w.queued(t, Forever)
		for range 100 {
			time.Sleep(11 * time.Second)
			other, err := c.Shared(t.Context(), "backup")
			held := mustHeld(t, other, err)
			if held.Holders[0].State != StateWaiting {
				t.Errorf("held by %v", held)
			}
			other, err = c.Exclusive(t.Context(), "prune")
			mustHeld(t, other, err)
		}
		k.Release(t.Context())
		prune.got(t).Release(t.Context())
		w.empty()
	})
}

// TestQueue: first come, first served.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		k, err := w.machine().Shared(t.Context(), "backup")
		mustLock(t, k, err)
		var (
			mu    sync.Mutex
			order []int
			all   sync.WaitGroup
		)
		for i := range 20 {
			m := w.machine()
			wait := m.wants(t, Exclusive, Forever)
			time.Sleep(time.Second) // their wall clocks agree to within that
			all.Go(func() {
				lock := wait.got(t)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Minute)
				lock.Release(t.Context())
			})
		}
		k.Release(t.Context())
		all.Wait()
		if !slices.IsSorted(order) || len(order) != 20 {
			t.Errorf("served in the order %v", order)
		}
		w.empty()
	})
}

// TestWaitEnds: a wait that has ended leaves nothing, however it ends.
func TestWaitEnds(t *testing.T) {
	errStop := errors.New("stop")
	for _, how := range []string{"timeout", "cancel", "refused"} {
		eachMode(t, func(t *testing.T, w *world, mode Mode) {
			a, b := w.machine(), w.machine()
			k, err := a.Exclusive(t.Context(), "x")
			mustLock(t, k, err)
			wait := b.wants(t, mode, 5*time.Minute)
			time.Sleep(time.Minute)
			wait.waits(t)
			switch how {
			case "timeout":
				<-wait.done
				held := mustHeld(t, wait.lock, wait.err)
				if held.Waited < 5*time.Minute || held.Waited > 5*time.Minute+15*time.Second || wait.took > 5*time.Minute+20*time.Second {
					t.Errorf("it waited %v and took %v", held.Waited, wait.took)
				}
				if !strings.Contains(held.Error(), "still locked after 5m") || held.Holders[0].Holder != "m1 (pid 101)" {
					t.Error(held)
				}
			case "cancel":
				wait.cancel(errStop)
				<-wait.done
				if !errors.Is(wait.err, errStop) || wait.took > time.Minute+5*time.Second {
					t.Errorf("%v after %v", wait.err, wait.took)
				}
			case "refused":
				b.hooks.Before(func(_ context.Context, r hookstore.Request) error {
					if r.Op == "list" {
						return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrPermission}
					}
					return nil
				})
				<-wait.done
				if !errors.Is(wait.err, store.ErrPermission) || wait.took > time.Minute+15*time.Second {
					t.Errorf("%v after %v", wait.err, wait.took)
				}
			}
			k.Release(t.Context())
			w.empty()
		})
	}
}

// TestWaitCosts: a wait costs one LIST each 1 to 2 s at first, and then each 5 to 10 s, the
// ticket's refreshes, a look at lock.exclusive if it has changed, and the reads of the lock in its way:
// up to four per second at first, and then one each 5 s.
func TestWaitCosts(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{})
			for range 20 {
				k, err := w.machine().Shared(t.Context(), "backup")
				mustLock(t, k, err)
				defer k.Release(t.Context())
			}
			a := w.machine()
			if mode == Shared {
				for _, key := range w.keys() {
					_ = w.mem.Delete(t.Context(), key)
				}
				k, err := w.machine().Exclusive(t.Context(), "prune")
				mustLock(t, k, err)
				defer k.Release(t.Context())
			}
			time.Sleep(DefaultTTL) // a holder that has just come might still withdraw
			wait := a.wants(t, mode, Forever)
			time.Sleep(10 * time.Second)
			if _, by := a.hooks.Count(); by["list"] < 4 || by["list"] > 11 || by["get"] < 20 || by["get"] > 90 {
				t.Errorf("%v: in the first 10 s: %v", mode, by)
			}
			time.Sleep(10 * time.Minute)
			a.hooks.Count()
			time.Sleep(time.Hour)
			_, by := a.hooks.Count()
			if by["list"] < 360 || by["list"] > 720 {
				t.Errorf("%v: %d LISTs in an hour", mode, by["list"])
			}
			if by["get"] < 400 || by["get"] > 850 || by["put"] > 125 || by["delete"] > 0 {
				t.Errorf("%v: in an hour %v", mode, by)
			}
			wait.cancel(nil)
			<-wait.done
		})
	}
}

// TestWaiterIsGone: a waiter that was killed blocks no acquirer for longer than its ttl.
func TestWaiterIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		c := w.machine()
		k, b, wait := w.queued(t, Forever)
		time.Sleep(10 * time.Second)
		b.hooks.Before(func(ctx context.Context, _ hookstore.Request) error { <-ctx.Done(); return ctx.Err() })
		wait.cancel(nil)
		<-wait.done
		k.Release(t.Context())
		other, err := c.Shared(t.Context(), "backup")
		mustHeld(t, other, err)
		time.Sleep(DefaultTTL)
		other, err = c.Shared(t.Context(), "backup")
		mustLock(t, other, err).Release(t.Context())
		w.empty()
	})
}

// TestWaitOutage: a wait outlasts failures of the store for less than a ttl, and no longer
// ones.
func TestWaitOutage(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		wait := b.wants(t, mode, Forever)
		time.Sleep(time.Minute)
		b.hooks.Before(outage)
		time.Sleep(50 * time.Second)
		b.hooks.Before(nil)
		time.Sleep(time.Minute)
		wait.waits(t)
		b.hooks.Before(outage)
		start := time.Now()
		<-wait.done
		if took := time.Since(start); !errors.Is(wait.err, errOutage) || took < DefaultTTL || took > 2*DefaultTTL {
			t.Errorf("%v after %v", wait.err, took)
		}
		k.Release(t.Context())
	})
}

// TestTicketIsNoFlag: an object that says "waiting" never says "held": an earlier put of it,
// thought lost, can be applied at any time.
func TestTicketIsNoFlag(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		states := map[string]map[State]bool{}
		var mu sync.Mutex
		var late []hookstore.Request
		b.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			var said body
			if r.Op != "put" || json.Unmarshal(r.Body, &said) != nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if states[r.Key] == nil {
				states[r.Key] = map[State]bool{}
			}
			states[r.Key][said.State] = true
			if said.State == StateWaiting {
				late = append(late, r)
			}
			return nil
		})
		k, err := a.acquire(t.Context(), Exclusive, "x")
		mustLock(t, k, err)
		wait := b.wants(t, mode, Forever)
		time.Sleep(2 * time.Minute)
		k.Release(t.Context())
		lock := wait.got(t)
		mu.Lock()
		tickets := slices.Clone(late)
		mu.Unlock()
		if len(tickets) < 3 {
			t.Errorf("a ticket was put %d times", len(tickets))
		}
		for _, r := range tickets {
			w.put(r.Key, r.Body)
		}
		other, err := a.Exclusive(t.Context(), "prune")
		mustHeld(t, other, err)
		time.Sleep(DefaultTTL)
		lock.Release(t.Context())
		mu.Lock()
		defer mu.Unlock()
		for key, said := range states {
			if said[StateWaiting] && len(said) > 1 {
				t.Errorf("%s had the states %v", key, said)
			}
		}
	})
}

// TestResumeBeforeThoseWhoWait: a holder that has lost its lock for a while resumes it
// although others wait for it.
func TestResumeBeforeThoseWhoWait(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		time.Sleep(time.Second)
		wait := b.wants(t, Exclusive, Forever)
		a.hooks.Before(outage)
		<-k.Context().Done()
		a.hooks.Before(nil)
		next, err := k.Resume(t.Context())
		mustLock(t, next, err)
		wait.waits(t)
		next.Release(t.Context())
		wait.got(t).Release(t.Context())
		w.empty()
	})
}

// TestTicketIsBroken: Break removes a waiter's ticket. The waiter puts it again, at the same
// place.
func TestTicketIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		k, _, wait := w.queued(t, Forever)
		time.Sleep(10 * time.Second)
		before := w.tickets()
		if err := w.mem.Delete(t.Context(), before[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultTTL / 2)
		if after := w.tickets(); !slices.Equal(before, after) {
			t.Errorf("%v, and then %v", before, after)
		}
		k.Release(t.Context())
		wait.got(t).Release(t.Context())
		w.empty()
	})
}

// TestWaitEvents: an observer gets an event when the wait, or the holders that it waits for,
// change.
func TestWaitEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		k, b, wait := w.queued(t, 10*time.Minute)
		time.Sleep(5 * time.Minute)
		wait.waits(t)
		n := b.saw(EventWaiting)
		if n < 9 || n > 12 { // each refresh
			t.Errorf("%d events", n)
		}
		var last Event
		for _, e := range b.seen {
			if e.Kind == EventWaiting {
				if last.Waited >= e.Waited && last.Waited > 0 || len(e.Holders) != 1 || e.Holders[0].Left < 20*time.Second {
					t.Errorf("%+v after %+v", e, last)
				}
				last = e
			}
		}
		if b.saw(EventBlocked) > 0 {
			t.Error("it isn't blocked yet")
		}
		<-wait.done
		b.Flush(t.Context())
		if b.saw(EventBlocked) != 1 {
			t.Error("it isn't blocked")
		}
		k.Release(t.Context())
	})
}

// TestAcquiredEventHasTheWait: EventAcquired has the duration of the wait.
func TestAcquiredEventHasTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		k, b, wait := w.queued(t, 10*time.Minute)
		time.Sleep(3 * time.Minute)
		k.Release(t.Context())
		lock := wait.got(t)
		b.Flush(t.Context())
		if b.saw(EventAcquired) != 1 {
			t.Error("no such event")
		}
		for _, e := range b.seen {
			if e.Kind == EventAcquired && (e.Waited < 3*time.Minute || e.Waited > 3*time.Minute+15*time.Second || e.ID != lock.ID() || e.Left <= 0) {
				t.Errorf("%+v", e)
			}
		}
		lock.Release(t.Context())
	})
}

// TestWaitInDoubt: acquirers with and without a wait watch a perhaps stale lock for as long as
// it can live.
func TestWaitInDoubt(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second, Forever} {
		eachMode(t, func(t *testing.T, w *world, mode Mode) {
			a, b := w.machine(), w.machine()
			a.clock.setSkew(time.Hour) // not stale by its holder's clock
			k, err := a.Exclusive(t.Context(), "prune")
			mustLock(t, k, err)
			a.lose(t, k)
			time.Sleep(DefaultTTL)
			start := time.Now()
			other, err := b.acquire(t.Context(), mode, "x", Wait(wait))
			if w.clockless && wait < DefaultTTL { // stale by no clock
				mustHeld(t, other, err)
				return
			}
			mustLock(t, other, err)
			if took := time.Since(start); took > DefaultTTL+10*time.Second {
				t.Errorf("wait %v: let in after %v", wait, took)
			}
			other.Release(t.Context())
			a.hooks.Before(nil)
			k.Release(t.Context())
			if left := w.keys(); mode == Exclusive || !slices.Equal(left, []string{"index/lock.exclusive"}) {
				w.empty() // a shared acquirer passes lock.exclusive and leaves it
			}
		})
	}
}

// TestRepeatedFailureEndsTheWait: repeated failures end a wait once no holder keeps it out, because a
// waiter keeps all others out.
func TestRepeatedFailureEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			opts  mem.Options
			also  []AcquireOption
			fails hookstore.Before
			most  time.Duration
		}{
			"no fence":  {mem.Options{IfAbsent: mem.Claimed}, []AcquireOption{Fence()}, nil, 5 * time.Second},
			"exclusive": {mem.Options{}, nil, failsOn("lock.exclusive"), 3 * DefaultTTL},
		} {
			w := newWorld(t, c.opts)
			k, err := w.machine().Shared(t.Context(), "backup")
			mustLock(t, k, err)
			b := w.machine()
			wait := b.wants(t, Exclusive, Forever, c.also...)
			time.Sleep(time.Minute)
			wait.waits(t)
			if c.fails != nil {
				b.hooks.Before(c.fails)
			}
			k.Release(t.Context())
			start := time.Now()
			<-wait.done
			if took := time.Since(start); wait.err == nil || errors.Is(wait.err, ErrHeld) || took > c.most+10*time.Second {
				t.Errorf("%s: %v after %v", name, wait.err, took)
			}
			w.empty()
		}
	})
}

func failsOn(key string) hookstore.Before {
	return func(_ context.Context, r hookstore.Request) error {
		if r.Op == "put" && strings.Contains(r.Key, key) {
			return errOutage
		}
		return nil
	}
}

// TestWaitIgnoresOwnLeftovers: a waiter doesn't wait for objects of its own earlier attempt.
func TestWaitIgnoresOwnLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		k, b, wait := w.queued(t, Forever)
		time.Sleep(time.Minute)
		wait.waits(t)
		k.Release(t.Context())
		var raised atomic.Bool
		b.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" && strings.Contains(r.Key, "lock.exclusive") {
				raised.Store(true)
			} else if raised.Load() {
				return errOutage // so that it can neither look nor withdraw
			}
			return nil
		})
		for !raised.Load() {
			time.Sleep(time.Second)
		}
		time.Sleep(20 * time.Second)
		b.hooks.Before(nil)
		start := time.Now()
		wait.got(t).Release(t.Context())
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("it waited %v for itself", took)
		}
	})
}
