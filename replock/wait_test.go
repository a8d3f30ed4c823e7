package replock

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/cloudsticlock"
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
	backup = w.machine().takes(t, Shared)
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
				k := a.takes(t, first)
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
	do(t, func(t *testing.T, w *world) {
		c := w.machine()
		k, _, prune := w.queued(t, Forever)
		for range 100 {
			time.Sleep(11 * time.Second)
			held := c.refused(t, Shared)
			if held.Holders[0].State != StateWaiting {
				t.Errorf("held by %v", held)
			}
			c.refused(t, Exclusive)
		}
		k.Release(t.Context())
		prune.got(t).Release(t.Context())
		w.empty()
	})
}

// service notes in which order waiters get the lock. Each holds it for a minute.
type service struct {
	mu    sync.Mutex
	order []string
	all   sync.WaitGroup
}

func (s *service) of(t *testing.T, name string, p *pendingAcquire) {
	s.all.Go(func() {
		lock := p.got(t)
		s.mu.Lock()
		s.order = append(s.order, name)
		s.mu.Unlock()
		time.Sleep(time.Minute)
		lock.Release(t.Context())
	})
}

// was fails unless all have been served in this order.
func (s *service) was(t *testing.T, want string) {
	t.Helper()
	s.all.Wait()
	if got := strings.Join(s.order, " "); got != want {
		t.Errorf("served in the order %s, want %s", got, want)
	}
}

// TestQueue: first come, first served.
func TestQueue(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k := w.machine().takes(t, Shared)
		var s service
		want := []string{}
		for i := range 20 {
			s.of(t, fmt.Sprint(i), w.machine().wants(t, Exclusive, Forever))
			time.Sleep(time.Second) // their wall clocks agree to within that
			want = append(want, fmt.Sprint(i))
		}
		k.Release(t.Context())
		s.was(t, strings.Join(want, " "))
		w.empty()
	})
}

// TestWaitEnds: a wait that has ended leaves nothing, however it ends.
func TestWaitEnds(t *testing.T) {
	errStop := errors.New("stop")
	for _, how := range []string{"timeout", "cancel", "refused"} {
		eachMode(t, func(t *testing.T, w *world, mode Mode) {
			a, b := w.machine(), w.machine()
			k := a.takes(t, Exclusive)
			wait := b.wants(t, mode, 5*time.Minute)
			time.Sleep(time.Minute)
			wait.waits(t)
			switch how {
			case "timeout":
				<-wait.done
				held := mustHeld(t, wait.lock, wait.err)
				if held.Waited < 5*time.Minute || held.Waited > 5*time.Minute+time.Second || wait.took > 5*time.Minute+time.Second {
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

// TestWaiterLooksWhenALockIsStale: a waiter gets in as soon as the lock of a dead holder can be taken for
// stale, though its polls are further apart by then.
func TestWaiterLooksWhenALockIsStale(t *testing.T) {
	for range 3 {
		bothModes(t, mem.Options{}, func(t *testing.T, w *world, mode Mode) {
			a := w.machine()
			k := a.takes(t, Exclusive)
			a.hooks.Before(outage)
			time.Sleep(5 * time.Second) // or else the watch of its whole ttl is over first
			w.machine().wants(t, mode, Forever).got(t).Release(t.Context())
			if took := a.clock.Elapsed() - k.sent(); took < DefaultTTL+margin || took > DefaultTTL+margin+100*time.Millisecond {
				t.Errorf("let in %v after the last refresh", took)
			}
		})
	}
}

// TestWaitCosts: a wait costs one LIST each 1 to 2 s at first, and then each 5 to 10 s, the
// ticket's refreshes, a look at lock.exclusive if it has changed, and the reads of the lock in its way:
// up to four per second at first, and then one each 5 s.
func TestWaitCosts(t *testing.T) {
	bothModes(t, mem.Options{}, func(t *testing.T, w *world, mode Mode) {
		for range 20 {
			k := w.machine().takes(t, Shared)
			defer k.Release(t.Context())
		}
		a := w.machine()
		if mode == Shared {
			for _, key := range w.keys() {
				_ = w.mem.Delete(t.Context(), key)
			}
			k := w.machine().takes(t, Exclusive)
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
		if by["get"] < 400 || by["get"] > 850 || by["put"] < 119 || by["put"] > 125 || by["delete"] > 0 {
			t.Errorf("%v: in an hour %v", mode, by)
		}
		wait.cancel(nil)
		<-wait.done
	})
}

// TestWaiterIsGone: a waiter that was killed blocks no acquirer for longer than its ttl.
func TestWaiterIsGone(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		c := w.machine()
		k, b, wait := w.queued(t, Forever)
		time.Sleep(10 * time.Second)
		b.hooks.Before(func(ctx context.Context, _ hookstore.Request) error { <-ctx.Done(); return ctx.Err() })
		wait.cancel(nil)
		<-wait.done
		k.Release(t.Context())
		c.refused(t, Shared)
		time.Sleep(DefaultTTL)
		c.takes(t, Shared).Release(t.Context())
		w.empty()
	})
}

// TestWaitOutage: a wait outlasts failures of the store for less than a ttl, and no longer
// ones.
func TestWaitOutage(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		a.takes(t, Exclusive)
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
		k := a.takes(t, Exclusive)
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
		a.refused(t, Exclusive)
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
		k := a.takes(t, mode)
		time.Sleep(time.Second)
		wait := b.wants(t, Exclusive, Forever)
		a.hooks.Before(outage)
		<-k.Context().Done()
		a.hooks.Before(nil)
		next := mustResume(t, k)
		wait.waits(t)
		next.Release(t.Context())
		wait.got(t).Release(t.Context())
		w.empty()
	})
}

// TestWaitEvents: an observer gets an event when the wait, or the holders that it waits for,
// change.
func TestWaitEvents(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
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
	do(t, func(t *testing.T, w *world) {
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
			k := a.takes(t, Exclusive)
			a.lose(t, k)
			time.Sleep(DefaultTTL)
			start := time.Now()
			other, err := b.acquire(t.Context(), mode, "x", Wait(wait))
			if w.clockless && wait < DefaultTTL { // stale by no clock
				mustHeld(t, other, err)
				return
			}
			mustLock(t, other, err)
			if took := time.Since(start); took > DefaultTTL+time.Second {
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
			"exclusive": {mem.Options{}, nil, fails("put", "lock.exclusive", errOutage), 3 * DefaultTTL},
		} {
			w := newWorld(t, c.opts)
			k := w.machine().takes(t, Shared)
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

// TestWaitIgnoresOwnLeftovers: a waiter doesn't wait for objects of its own earlier attempt.
func TestWaitIgnoresOwnLeftovers(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
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
	do(t, func(t *testing.T, w *world) {
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
	bubble(t, mem.Options{PageSize: 2}, func(t *testing.T, w *world) {
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

// TestWaitingSharedComesNext: a waiting shared acquirer comes before all exclusive ones that came
// later, however many there are, and whether they wait or not.
func TestWaitingSharedComesNext(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k := w.machine().takes(t, Exclusive)
		var s service
		s.of(t, "first", w.machine().wants(t, Exclusive, Forever))
		time.Sleep(10 * time.Second)
		s.of(t, "shared", w.machine().wants(t, Shared, Forever))
		for range 5 {
			time.Sleep(5 * time.Second)
			s.of(t, "later", w.machine().wants(t, Exclusive, Forever))
		}
		k.Release(t.Context())
		time.Sleep(30 * time.Second)
		w.machine().refused(t, Exclusive)
		s.was(t, "first shared later later later later later")
		w.empty()
	})
}

// TestSharedQueue: waiters of both modes are served in the order in which they came, and shared ones
// that come together hold their locks together.
func TestSharedQueue(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k := w.machine().takes(t, Exclusive)
		time.Sleep(10 * time.Second) // it can't be about to withdraw
		var s service
		for i, mode := range []Mode{Shared, Shared, Exclusive, Shared, Exclusive, Exclusive, Shared} {
			s.of(t, []string{"0", "0", "1", "2", "3", "4", "5"}[i], w.machine().wants(t, mode, Forever))
			time.Sleep(time.Second) // their wall clocks agree to within that
		}
		k.Release(t.Context())
		s.was(t, "0 0 1 2 3 4 5")
		w.empty()
	})
}

// TestSharedTicketIsNoLockToOthers: to clients of the original protocol a shared waiter's ticket has
// expired.
func TestSharedTicketIsNoLockToOthers(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k := w.machine().takes(t, Exclusive)
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
		k := w.machine().takes(t, Exclusive)
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
		w.delete(key)
		time.Sleep(30 * time.Second)
		if tickets := w.tickets(); len(tickets) != 1 || tickets[0] == key {
			t.Errorf("afterwards: %v", tickets)
		}
		k.Release(t.Context())
		wait.got(t).Release(t.Context())
		w.empty()
	})
}

// watched makes a machine's store give hints of deletions.
func (w *world) watched() *machine {
	m := w.machine()
	m.hooks.Watched = true
	return m
}

// TestHintLetsAWaiterIn: a store's hint lets a waiter in at the release, however long it has waited.
func TestHintLetsAWaiterIn(t *testing.T) {
	for _, other := range []Mode{Shared, Exclusive} {
		for _, mode := range []Mode{Shared, Exclusive} {
			if other == Shared && mode == Shared {
				continue
			}
			do(t, func(t *testing.T, w *world) {
				k := w.machine().takes(t, other)
				wait := w.watched().wants(t, mode, Forever)
				time.Sleep(10 * time.Minute)
				wait.waits(t)
				began := time.Now()
				k.Release(t.Context())
				lock := wait.got(t)
				if took := time.Since(began); took > 0 {
					t.Errorf("%v after %v: let in %v after the release", mode, other, took)
				}
				lock.Release(t.Context())
				w.empty()
			})
		}
	}
}

// TestReleasedBeforeTheHints: a lock that is released between a waiter's look and the begin of the
// store's hints is noticed at once.
func TestReleasedBeforeTheHints(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k := w.machine().takes(t, Exclusive)
		time.Sleep(time.Minute)
		m := w.watched()
		m.hooks.Before(first("delete", "lock.shared", func(hookstore.Request) error { return k.Release(t.Context()) }))
		began := time.Now()
		lock := m.wants(t, Shared, Forever).got(t)
		if took := time.Since(began); took > 0 {
			t.Errorf("let in after %v", took)
		}
		lock.Release(t.Context())
		w.empty()
	})
}

// TestHintsAreBounded: in a storm of hints a waiter sends no more than a get per second, beside
// its polls, and a few at first.
func TestHintsAreBounded(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k := w.machine().takes(t, Shared)
		time.Sleep(time.Minute)
		m := w.watched()
		wait := m.wants(t, Exclusive, Forever)
		m.hooks.Count()
		for i := range 60_000 {
			key := fmt.Sprintf("index/lock.shared/19990101T000000.%09dZ-x", i)
			w.put(key, nil)
			w.delete(key)
			time.Sleep(time.Millisecond)
		}
		_, by := m.hooks.Count()
		if by["get"] < 60 || by["get"] > hintBurst+60+1 || by["list"] > 30 {
			t.Errorf("in a minute: %v", by)
		}
		wait.waits(t)
		k.Release(t.Context())
		wait.got(t).Release(t.Context())
		w.empty()
	})
}

// TestHintDecidesNothing: a hint, and a read that doesn't find the lock, let no waiter in while a
// listing shows the lock.
func TestHintDecidesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		k := w.machine().takes(t, Exclusive)
		time.Sleep(time.Minute)
		m := w.watched()
		wait := m.wants(t, mode, Forever)
		m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "get" {
				return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrNotFound}
			}
			return nil
		})
		m.hooks.Count()
		for range 600 {
			w.put("index/lock.shared/x", nil)
			w.delete("index/lock.shared/x")
			time.Sleep(100 * time.Millisecond)
			wait.waits(t)
		}
		if _, by := m.hooks.Count(); by["list"] > hintBurst+2*60 {
			t.Errorf("in a minute: %v", by)
		}
		m.hooks.Before(nil)
		k.Release(t.Context())
		wait.got(t).Release(t.Context())
	})
}

// TestMissedHint: a waiter whose hints fail to come polls.
func TestMissedHint(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		k := w.machine().takes(t, Exclusive)
		m := w.machine()
		m.store = silent{m.store}
		wait := m.wants(t, mode, Forever)
		time.Sleep(10 * time.Minute)
		wait.waits(t)
		k.Release(t.Context())
		began := time.Now()
		lock := wait.got(t)
		if took := time.Since(began); took > 2*lastPoll {
			t.Errorf("let in after %v", took)
		}
		lock.Release(t.Context())
		w.empty()
	})
}

// silent is a store whose hints never come.
type silent struct{ store.Store }

func (silent) Watch(context.Context, string) (<-chan struct{}, error) {
	return make(chan struct{}), nil
}

// roundTrip is that of the simulated stores below.
const roundTrip = 40 * time.Millisecond

// paced is a machine with a pace, far from its store, whose random numbers are always the same.
func (w *world) paced(p pace, seed uint64) *machine {
	m := w.machine(func(o *Options) { o.Rand = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}) })
	m.pace = p
	m.hooks.Before(func(context.Context, hookstore.Request) error { time.Sleep(roundTrip); return nil })
	return m
}

// holds are n times for which a lock is held, from a second to an hour, one in each nth of that range
// on a logarithmic scale: as many from 1 to 2 s as from half an hour to an hour.
func holds(n int) (all []time.Duration) {
	for i := range n {
		all = append(all, time.Duration(math.Pow(3600, (float64(i)+.5)/float64(n))*float64(time.Second)))
	}
	return all
}

// handOver returns the delays between the end of a release and the time when the waiter holds the
// lock, one for each time for which the lock is held, and the waiter's requests per hour of waiting.
func handOver(t *testing.T, p pace, mode Mode, holds []time.Duration) (delays []time.Duration, perHour float64) {
	requests, waited := 0, time.Duration(0)
	for i, hold := range holds {
		do(t, func(t *testing.T, w *world) {
			k := w.paced(pace{}, uint64(i)).takes(t, Exclusive)
			time.Sleep(5 * time.Second)
			b := w.paced(p, uint64(i)+1)
			wait := b.wants(t, mode, Forever)
			time.Sleep(hold)
			k.Release(t.Context())
			released := time.Now()
			lock := wait.got(t)
			delays = append(delays, time.Since(released))
			sent, _ := b.hooks.Count()
			requests, waited = requests+sent, waited+wait.took
			lock.Release(t.Context())
		})
	}
	return delays, float64(requests) / waited.Hours()
}

// quantiles returns the median and the 90th percentile.
func quantiles(d []time.Duration) (median, p90 time.Duration) {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2], d[len(d)*9/10]
}

// paces makes TestHandOver measure other paces, too: go test -run TestHandOver -v ./replock -paces
var paces = flag.Bool("paces", false, "measure the hand-over at other paces, too")

// TestHandOver: a waiter gets a lock a hundredth and a half of its wait after the release, at the
// latest, or less than half a second, and eight round trips. It sends no more than a request per
// second. docs/benchmarks.md has the table that -paces prints.
func TestHandOver(t *testing.T) {
	n := rounds.Fewer(20, 10)
	if *paces {
		n = 100
	}
	all := holds(n)
	for _, mode := range []Mode{Shared, Exclusive} {
		delays, perHour := handOver(t, ownPace, mode, all)
		for i, d := range delays {
			if most := ownPace.after(all[i])*3/2 + 8*roundTrip; d > most {
				t.Errorf("%s: let in %v after the release, and %v after it came, want %v", mode, d, all[i], most)
			}
		}
		if perHour > 3600 {
			t.Errorf("%s: %.0f requests per hour", mode, perHour)
		}
		logPace(t, ownPace, mode, delays, perHour)
	}
	if !*paces {
		return
	}
	every := func(d time.Duration) pace { return pace{1, d, d} }
	for _, p := range []pace{
		{}, every(5 * time.Second), every(2 * time.Second), every(time.Second), every(time.Second / 2), every(time.Second / 4),
		{.04, ownPace.first, ownPace.last}, {.02, ownPace.first, ownPace.last}, {.005, ownPace.first, ownPace.last},
	} {
		delays, perHour := handOver(t, p, Exclusive, all)
		logPace(t, p, Exclusive, delays, perHour)
	}
}

func logPace(t *testing.T, p pace, mode Mode, delays []time.Duration, perHour float64) {
	median, p90 := quantiles(delays)
	t.Logf("%g of the wait, from %v to %v, %s: median %.2f s, p90 %.2f s, %.0f requests per hour", p.share, p.first, p.last, mode, median.Seconds(), p90.Seconds(), perHour)
}

// TestWaitersPerHour counts the requests of 1, 10 and 100 waiters in an hour's wait.
// docs/benchmarks.md has the table that it prints.
func TestWaitersPerHour(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		for _, n := range rounds.Fewer([]int{1, 10, 100}, []int{1, 10}) {
			do(t, func(t *testing.T, w *world) {
				w.machine().takes(t, Exclusive)
				time.Sleep(10 * time.Second)
				var waiters []*machine
				var waits []*pendingAcquire
				for i := range n {
					m := w.paced(ownPace, uint64(i))
					waiters, waits = append(waiters, m), append(waits, m.wants(t, mode, Forever))
				}
				time.Sleep(time.Hour)
				sum, most := map[string]int{}, 0
				for _, m := range waiters {
					all, by := m.hooks.Count()
					most = max(most, all)
					for op, n := range by {
						sum[op] += n
					}
				}
				t.Logf("| %d %s | %d | %d | %d |", n, mode, sum["get"], sum["list"], sum["put"])
				// Exclusive ones come one after the other: those behind the first poll half as often, and read the
				// blocker the more seldom, the more come before them.
				if reads, polls := 4000, 4000; mode == Exclusive && n == 10 && (sum["get"] > reads || sum["list"] > polls) {
					t.Errorf("%d %s: %v, want %d reads and %d polls at most", n, mode, sum, reads, polls)
				}
				if most > 3600+hintBurst {
					t.Errorf("%d %s: one of them sent %d requests in an hour", n, mode, most)
				}
				for _, p := range waits {
					p.cancel(nil)
					<-p.done
				}
			})
		}
	}
}
