package replock

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
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
		p.lock, p.err = m.lock(ctx, mode, "waits", append(opts, WithWait(wait))...)
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

// ends cancels the acquire, and waits for its end.
func (p *pendingAcquire) ends(cause error) {
	p.cancel(cause)
	<-p.done
}

// tickets returns the keys of the tickets in the store.
func (w *world) tickets() []string {
	return slices.DeleteFunc(w.keys(), func(key string) bool {
		raw, _, _ := w.mem.Get(context.Background(), key, wire.MaxBody)
		l, err := wire.Decode(raw)
		return err != nil || l.State != wire.StateWaiting
	})
}

// TestReleaseLetsAWaiterIn: a waiter acquires within 2 s of the release, or within 10 s after a long wait. So does one
// whose hints fail to come. With a store's hint a waiter acquires at the release, however long it has waited.
func TestReleaseLetsAWaiterIn(t *testing.T) {
	for _, c := range []struct {
		hints      func(*machine)
		long, soon time.Duration
	}{
		{func(*machine) {}, 5 * time.Second, 5100 * time.Millisecond},
		{func(*machine) {}, rounds.Fewer(3*time.Hour, 10*time.Minute), 10100 * time.Millisecond},
		{func(m *machine) { m.store = silent{m.store} }, 10 * time.Minute, 2 * lastPoll},
		{func(m *machine) { m.hooks.Watched = true }, 10 * time.Minute, 0},
	} {
		conflicts(t, func(t *testing.T, w *world, first, second Mode) {
			k, m := w.machine().takes(t, first), w.machine()
			c.hints(m)
			p := m.wants(t, second, Forever)
			time.Sleep(c.long)
			p.waits(t)
			k.Release(t.Context())
			released := time.Now()
			lock := p.got(t)
			took(t, released, 0, c.soon)
			w.leavesNothing(lock)
		})
	}
}

// TestQueue: waiters of both modes are served as they came, before all later acquirers, and shared ones that come
// together hold together.
func TestQueue(t *testing.T) {
	const s, x = Shared, Exclusive
	eachOf(t, [][]Mode{slices.Repeat([]Mode{x}, 20), {s, s, x, s, x, x, s}, {x, s, x, x, x, x, x}}, func(t *testing.T, w *world, modes []Mode) {
		k := w.machine().takes(t, Exclusive)
		time.Sleep(10 * time.Second) // it can't be about to withdraw
		var want []int
		var served notes[int]
		var all sync.WaitGroup
		turn := 0
		for i, mode := range modes {
			if i == 0 || mode == Exclusive || modes[i-1] == Exclusive {
				turn++
			}
			p, turn := w.machine().wants(t, mode, Forever), turn
			want = append(want, turn)
			all.Go(func() {
				lock := p.got(t)
				served.add(turn)
				time.Sleep(time.Minute)
				lock.Release(t.Context())
			})
			time.Sleep(time.Second) // their wall clocks agree to within that
		}
		k.Release(t.Context())
		time.Sleep(30 * time.Second)
		w.machine().refused(t, Exclusive)
		all.Wait()
		assert.Equal(t, served.got(), want, "served in the order")
		w.empty()
	})
}

// TestWaitEnds: a wait that has ended leaves nothing, however it ends.
func TestWaitEnds(t *testing.T) {
	errStop := errors.New("stop")
	for how, c := range map[string]struct {
		end  func(b *machine, wait *pendingAcquire)
		err  error
		soon time.Duration
	}{
		"timeout": {func(*machine, *pendingAcquire) {}, ErrHeld, 4*time.Minute + time.Second},
		"cancel":  {func(_ *machine, wait *pendingAcquire) { wait.cancel(errStop) }, errStop, 5 * time.Second},
		"refused": {func(b *machine, _ *pendingAcquire) { b.hooks.Before(fails("list", "", store.ErrPermission)) }, store.ErrPermission, 15 * time.Second},
	} {
		stores.modes(t, func(t *testing.T, w *world, mode Mode) {
			k := w.machine().takes(t, Exclusive)
			b := w.machine()
			wait := b.wants(t, mode, 5*time.Minute)
			time.Sleep(time.Minute)
			wait.waits(t)
			start := time.Now()
			c.end(b, wait)
			<-wait.done
			took(t, start, 0, c.soon)
			isAll(t, wait.err, c.err)
			if how == "timeout" {
				held := mustHeld(t, wait.lock, wait.err)
				assert.That(t, held.Waited.Truncate(time.Second) == 5*time.Minute, "it waited %v", held.Waited)
				assert.That(t, strings.Contains(held.Error(), "still locked after 5m") && held.Holders[0].Holder == "m1 (pid 101)", "%v", held)
			}
			w.leavesNothing(k)
		})
	}
}

// TestWaitIsNotNegative: an acquire with a negative wait is refused, and sends nothing. It isn't
// taken for one that doesn't wait, nor for one that waits without an end.
func TestWaitIsNotNegative(t *testing.T) {
	bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
		m := w.machine()
		_, err := m.lock(t.Context(), mode, "x", WithWait(-1))
		assert.That(t, err != nil && strings.Contains(err.Error(), "wait -1ns: must not be negative"), "%v", err)
		m.sentJust(t, nil)
	})
}

// TestWaiterLooksWhenALockIsStale: a waiter whose polls are far apart acquires as soon as a dead holder's lock is stale.
func TestWaiterLooksWhenALockIsStale(t *testing.T) {
	for range 3 {
		bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
			a, k := w.holder(t, Exclusive)
			a.hooks.Before(outage)
			time.Sleep(5 * time.Second) // or else the watch of its whole ttl is over first
			w.machine().wants(t, mode, Forever).got(t).Release(t.Context())
			if took := a.clock.Elapsed() - k.lease.Owner().(*term).sent(); took < DefaultTTL+verdict.Margin || took > DefaultTTL+verdict.Margin+100*time.Millisecond {
				t.Errorf("let in %v after the last refresh", took)
			}
		})
	}
}

// TestWaitCosts: a wait costs one LIST each 1 to 2 s at first, and then each 5 to 10 s, the
// ticket's refreshes, a look at lock.exclusive if it has changed, and the reads of the lock in its way:
// up to four per second at first, and then one each 5 s.
func TestWaitCosts(t *testing.T) {
	bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
		w.machine().takes(t, map[Mode]Mode{Shared: Exclusive, Exclusive: Shared}[mode])
		for range 4 * (mode - Shared) { // others beside it
			w.machine().takes(t, Shared)
		}
		time.Sleep(DefaultTTL) // a holder that has just come might still withdraw
		a := w.machine()
		wait := a.wants(t, mode, Forever)
		time.Sleep(10 * time.Second)
		a.sent(t, between{"list": {4, 11}, "get": {70, 130}})
		time.Sleep(10 * time.Minute)
		a.hooks.Count()
		time.Sleep(time.Hour)
		a.sent(t, between{"list": {360, 720}, "get": {400, 850}, "put": {119, 125}, "delete": {0, 0}})
		wait.ends(nil)
	})
}

// TestWaitsForNobodyBehind: a shared acquirer whose clock is behind yields to the ticket of an exclusive waiter, as
// long as it has none. Then its own ticket is the earlier one, and it takes the lock at once.
func TestWaitsForNobodyBehind(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		_, held := w.holder(t, Shared)
		b := w.machine()
		exclusive := b.wants(t, Exclusive, Forever)
		time.Sleep(5 * time.Second)
		c := w.machine()
		c.clock.setSkew(-time.Hour)
		start := time.Now()
		k := c.wants(t, Shared, Forever).got(t)
		took(t, start, 0, 100*time.Millisecond)
		k.Release(t.Context())
		held.Release(t.Context())
		exclusive.got(t).Release(t.Context())
	})
}

// TestReadsNobodyBehind: a shared waiter whose clock is behind takes the lock as soon as its holder releases it, although
// an exclusive waiter with a later ticket came first.
func TestReadsNobodyBehind(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		_, held := w.holder(t, Exclusive)
		exclusive := w.machine().wants(t, Exclusive, Forever)
		time.Sleep(5 * time.Second)
		c := w.machine()
		c.clock.setSkew(-time.Hour)
		p := c.wants(t, Shared, Forever)
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		held.Release(t.Context())
		k := p.got(t)
		took(t, start, 0, 300*time.Millisecond)
		k.Release(t.Context())
		exclusive.got(t).Release(t.Context())
	})
}

// TestWaitOutage: a wait outlasts failures of the store for less than a ttl, and no longer ones.
func TestWaitOutage(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		w.machine().takes(t, Exclusive)
		b := w.machine()
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
		isAll(t, wait.err, errOutage)
		took(t, start, DefaultTTL, 2*DefaultTTL)
	})
}

// TestWaitOutlastsARotation: a waiter continues for two minutes if the store refuses credentials that it has accepted
// before, or none can be found, because another process might write new ones. Its error then contains how long it tried.
func TestWaitOutlastsARotation(t *testing.T) {
	for name, c := range map[string]struct {
		err error
		ttl time.Duration
	}{
		"refused":             {store.ErrCredentials, DefaultTTL},
		"refused, a long ttl": {store.ErrCredentials, time.Hour},
		"not found":           {fault.CredentialsLater, DefaultTTL},
	} {
		sub(t, name, memory.Options{}, func(t *testing.T, w *world) {
			w.machine().takes(t, Exclusive)
			b, most := w.machine(func(o *Options) { o.TTL = c.ttl }), max(c.ttl, 2*time.Minute)
			wait := b.wants(t, Exclusive, Forever)
			time.Sleep(time.Hour)
			b.hooks.Before(fails("", "", c.err))
			time.Sleep(most - 15*time.Second)
			b.hooks.Before(nil)
			time.Sleep(time.Minute)
			wait.waits(t)
			b.hooks.Before(fails("", "", c.err))
			start := time.Now()
			<-wait.done
			isAll(t, wait.err, c.err, store.ErrCredentials)
			took(t, start, most, most+time.Minute)
			assert.That(t, strings.Contains(wait.err.Error(), "no valid credentials for "), "%v", wait.err)
		})
	}
}

// TestRefusedAtFirst: if the store has accepted no request with the credentials, a refusal is final at once, even if the
// acquirer could wait. So is a missing permission of a waiter.
func TestRefusedAtFirst(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		b := w.machine()
		b.hooks.Before(fails("", "", store.ErrCredentials))
		start := time.Now()
		b.fails(t, mode, store.ErrCredentials, WithWait(time.Hour))
		took(t, start, 0, time.Second)

		w.machine().takes(t, Exclusive)
		wait := w.machine()
		denied := wait.wants(t, mode, Forever)
		time.Sleep(time.Minute)
		wait.hooks.Before(fails("", "", store.ErrPermission))
		start = time.Now()
		<-denied.done
		isAll(t, denied.err, store.ErrPermission)
		took(t, start, 0, time.Minute)
	})
}

// TestTicketIsNoFlag: an object with the state "waiting" never gets the state "held": an earlier put of it can come at any time.
func TestTicketIsNoFlag(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		b := w.machine()
		var puts notes[hookstore.Request]
		b.hooks.Before(on("put", "", puts.add))
		k := w.machine().takes(t, Exclusive)
		wait := b.wants(t, mode, Forever)
		time.Sleep(2 * time.Minute)
		k.Release(t.Context())
		lock := wait.got(t)
		time.Sleep(DefaultTTL)
		lock.Release(t.Context())
		waiting, tickets := map[string]bool{}, 0
		for _, r := range puts.got() {
			l, err := wire.Decode(r.Body)
			if err != nil {
				continue // it is emptied
			}
			waits, again := waiting[r.Key]
			assert.That(t, !again || waits == (l.State == wire.StateWaiting), "%s gets the state %s", r.Key, l.State)
			if waiting[r.Key] = l.State == wire.StateWaiting; waiting[r.Key] {
				tickets++
			}
		}
		assert.That(t, tickets >= 3, "a ticket was put %d times", tickets)
	})
}

// TestWaitEvents: an observer gets an event when the wait, or the holders that it waits for, change, and one
// when the wait ends in vain, or with the lock.
func TestWaitEvents(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, b, wait := w.queued(t, 10*time.Minute)
		time.Sleep(time.Second)
		c := w.machine()
		second := c.wants(t, Exclusive, time.Hour)
		time.Sleep(5 * time.Minute)
		n := b.saw(EventWaiting)
		assert.That(t, n >= 9 && n <= 12 && b.saw(EventBlocked) == 0, "%d events", n) // one for each refresh
		var last time.Duration
		for _, e := range b.seen() {
			if e.Kind == EventWaiting {
				assert.That(t, last <= e.Waited && len(e.Holders) == 1 && e.Holders[0].Left >= 20*time.Second, "%+v after %v", e, last)
				last = e.Waited
			}
		}
		<-wait.done
		equal(t, "blocked", b.saw(EventBlocked), 1)
		k.Release(t.Context())
		lock := second.got(t)
		equal(t, "acquired", c.saw(EventAcquired), 1)
		for _, e := range c.seen() {
			assert.That(t, e.Kind != EventAcquired || e.Waited >= 9*time.Minute && e.Waited <= 10*time.Minute+15*time.Second && e.ID == lock.ID() && e.Left > 0, "%+v", e)
		}
		lock.Release(t.Context())
	})
}

// TestWaitInDoubt: acquirers with and without a wait watch a perhaps stale lock for as long as it can live.
func TestWaitInDoubt(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second, Forever} {
		stores.modes(t, func(t *testing.T, w *world, mode Mode) {
			a, b := w.machine(), w.machine()
			a.clock.setSkew(time.Hour) // not stale by its holder's clock
			k := a.takes(t, Exclusive)
			a.lose(t, k)
			time.Sleep(DefaultTTL)
			if w.clockless && wait < DefaultTTL { // stale by no clock
				b.refused(t, mode, WithWait(wait))
				return
			}
			start := time.Now()
			other := b.takes(t, mode, WithWait(wait))
			took(t, start, 0, DefaultTTL+time.Second)
			other.Release(t.Context())
			a.hooks.Before(nil)
			k.Release(t.Context())
			if left := w.keys(); mode == Exclusive || !slices.Equal(left, []string{pointer}) {
				w.empty() // a shared acquirer passes lock.exclusive and leaves it
			}
		})
	}
}

// TestRepeatedFailureEndsTheWait: repeated failures end a wait that no holder causes, since a waiter keeps others out.
func TestRepeatedFailureEndsTheWait(t *testing.T) {
	for name, c := range map[string]struct {
		opts  memory.Options
		also  []AcquireOption
		fails hookstore.Before
		most  time.Duration
	}{
		"no fence":  {memory.Options{IfAbsent: memory.Claimed}, []AcquireOption{WithFencingToken()}, nil, 5 * time.Second},
		"exclusive": {memory.Options{}, nil, fails("put", pointer, errOutage), 3 * DefaultTTL},
	} {
		sub(t, name, c.opts, func(t *testing.T, w *world) {
			k := w.machine().takes(t, Shared)
			b := w.machine()
			wait := b.wants(t, Exclusive, Forever, c.also...)
			time.Sleep(time.Minute)
			wait.waits(t)
			b.hooks.Before(c.fails)
			k.Release(t.Context())
			start := time.Now()
			<-wait.done
			took(t, start, 0, c.most+10*time.Second)
			assert.That(t, wait.err != nil && !errors.Is(wait.err, ErrHeld), "%v", wait.err)
			w.empty()
		})
	}
}

// TestWaitIgnoresOwnLeftovers: a waiter doesn't wait for objects of its own earlier attempt.
func TestWaitIgnoresOwnLeftovers(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, b, wait := w.queued(t, Forever)
		time.Sleep(time.Minute)
		wait.waits(t)
		raised := make(chan struct{})
		b.hooks.After(answered("put", pointer, func(hookstore.Request) {
			b.hooks.Before(outage) // so that it can neither look nor withdraw
			close(raised)
		}))
		k.Release(t.Context())
		<-raised
		time.Sleep(20 * time.Second)
		b.hooks.After(nil)
		b.hooks.Before(nil)
		start := time.Now()
		wait.got(t).Release(t.Context())
		took(t, start, 0, 15*time.Second)
	})
}

// TestBrokenTicketIsPutAgain: a waiter whose ticket was broken keeps its turn. It puts the ticket again when a
// poll whose listing no live lock cuts short lacks it, and doesn't wait for the ticket's refresh.
func TestBrokenTicketIsPutAgain(t *testing.T) {
	for _, live := range yesNo { // it waits for a lock that is live, or one that is watched
		bubble(t, memory.Options{NoStoreClock: true}, func(t *testing.T, w *world) {
			b, c, end := w.machine(), w.machine(), func() {}
			if live {
				k := w.machine().takes(t, Shared)
				end = func() { k.Release(t.Context()) }
			} else {
				w.put("index/lock.shared/x", []byte("\x01 encrypted"))
			}
			prune := b.wants(t, Exclusive, Forever)
			time.Sleep(3 * time.Second)
			tickets := w.tickets()
			_, err := c.Break(t.Context(), BreakOptions{ID: w.body(tickets[0]).ID})
			assert.OK(t, err)
			equal(t, "tickets left", len(w.tickets()), 0)
			time.Sleep(12 * time.Second)
			assert.Equal(t, w.tickets(), tickets, "tickets")
			c.refused(t, Shared)
			prune.waits(t)
			end()
			w.leavesNothing(prune.got(t))
		})
	}
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
		c.hooks.Before(hangs("", ""))
		behind.ends(nil)
		time.Sleep(2 * DefaultTTL)
		equal(t, "tickets, of which one is stale", len(w.tickets()), 2)
		k.Release(t.Context())
		lock := prune.got(t)
		equal(t, "reaped", b.saw(EventReaped), 1)
		equal(t, "tickets left", len(w.tickets()), 0)
		w.leavesNothing(lock)
	})
}

// TestTicketOnALaterPage: a waiter knows the store's time although its ticket is old, and first seen on a later page.
func TestTicketOnALaterPage(t *testing.T) {
	bubble(t, memory.Options{PageSize: 2}, func(t *testing.T, w *world) {
		b := w.machine(func(o *Options) { o.TTL = 10 * time.Minute })
		a, dead := w.holder(t, Exclusive)
		body, _, err := w.mem.Get(t.Context(), dead.Key(), wire.MaxBody)
		assert.OK(t, err)
		w.put(dead.Key()+"a", body) // on the ticket's page
		a.hooks.Before(outage)
		b.hooks.Store = untimed{w.mem}
		began := time.Now()
		time.Sleep(time.Second) // the ticket is behind both
		lock := b.wants(t, Exclusive, 9*time.Minute).got(t)
		took(t, began, 0, DefaultTTL+verdict.Margin+lastPoll*3/2+time.Second)
		lock.Release(t.Context())
	})
}

// untimed is a store whose puts don't return when they were applied, as S3's don't.
type untimed struct{ store.Store }

func (u untimed) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	o, err := u.Store.Put(ctx, key, body, opts)
	o.ModTime = time.Time{}
	return o, err
}

// TestWaitersPassInTheirOrder: a ticket keeps out later exclusive acquirers, and every shared one.
func TestWaitersPassInTheirOrder(t *testing.T) {
	const before, after = -time.Hour, time.Hour
	type row struct {
		state wire.State
		came  time.Duration
		mode  Mode
		held  bool
	}
	eachOf(t, []row{
		{wire.StateWaiting, before, Exclusive, true}, {wire.StateWaiting, after, Exclusive, false},
		{wire.StateAcquiring, before, Exclusive, true}, {wire.StateAcquiring, after, Exclusive, true},
		{wire.StateHeld, after, Exclusive, true},
		{wire.StateWaiting, before, Shared, true}, {wire.StateWaiting, after, Shared, true},
	}, func(t *testing.T, w *world, c row) {
		w.intent(c.state, time.Now().Add(c.came))
		time.Sleep(5 * time.Second)
		if c.held {
			w.machine().refused(t, c.mode)
		} else {
			w.machine().takes(t, c.mode)
		}
	})
}

// intent puts the intent of a client that came at a time, and returns its key.
func (w *world) intent(s wire.State, came time.Time) (key string) {
	m := w.machine()
	tr := m.try(Exclusive)
	tr.body.State = s
	m.date(tr)
	key = m.keys.Intent(came, tr.id)
	w.put(key, tr.body.Encode())
	return key
}

// TestSharedTicketIsNoLockToOthers: to clients of the original protocol a shared waiter's ticket has expired.
func TestSharedTicketIsNoLockToOthers(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.machine().takes(t, Exclusive)
		wait := w.machine().wants(t, Shared, Forever)
		time.Sleep(10 * time.Minute)
		equal(t, "tickets", len(w.tickets()), 1)
		w.delete(pointer) // the only other lock that they look at
		c := w.originals()
		c.clock.setSkew(-24 * time.Hour)
		c.must(t, Exclusive)
		wait.ends(nil)
	})
}

// TestReleasedBeforeTheHints: a release between a waiter's look and the begin of the hints is noticed at once.
func TestReleasedBeforeTheHints(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, m := w.machine().takes(t, Exclusive), w.machine()
		m.hooks.Watched = true
		time.Sleep(time.Minute)
		m.hooks.Before(first("delete", "lock.shared", func(hookstore.Request) error { return k.Release(t.Context()) }))
		began := time.Now()
		lock := m.wants(t, Shared, Forever).got(t)
		took(t, began, 0, 0)
		w.leavesNothing(lock)
	})
}

// TestHintsOfOthers: a waiter's hints are of the blocker alone. Other objects that come and go cost it nothing.
func TestHintsOfOthers(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		k, m := w.machine().takes(t, Exclusive), w.machine()
		time.Sleep(time.Minute)
		m.hooks.Watched = true
		wait := m.wants(t, mode, Forever)
		m.hooks.Count()
		for range 6000 {
			w.put("index/lock.shared/19990101", nil)
			w.delete("index/lock.shared/19990101")
			time.Sleep(10 * time.Millisecond)
			wait.waits(t)
		}
		m.sent(t, between{"get": {0, 4}, "list": {0, 30}})
		k.Release(t.Context())
		wait.got(t).Release(t.Context())
	})
}

// TestHintsAreBounded: in a storm of hints without a deletion a waiter sends a get per second, beside its polls, and a
// few at first. If a read doesn't find the lock, it looks. It acquires nothing while a listing shows the lock.
func TestHintsAreBounded(t *testing.T) {
	for _, c := range []struct {
		gets error
		want between
	}{
		{nil, between{"get": {60, hintBurst + 60 + 2}, "list": {0, 30}}},
		{store.ErrNotFound, between{"list": {0, hintBurst + 2*60}}},
	} {
		stores.modes(t, func(t *testing.T, w *world, mode Mode) {
			k, m := w.machine().takes(t, Exclusive), w.machine()
			time.Sleep(time.Minute)
			m.hooks.Store = storm{w.mem}
			m.hooks.Watched = true
			wait := m.wants(t, mode, Forever)
			m.hooks.Before(fails("get", "", c.gets))
			m.hooks.Count()
			time.Sleep(time.Minute)
			wait.waits(t)
			m.sent(t, c.want)
			m.hooks.Before(nil)
			k.Release(t.Context())
			wait.got(t).Release(t.Context())
		})
	}
}

// storm is a store that hints each 10 ms at a deletion, though there is none.
type storm struct{ *memory.Store }

func (storm) Watch(ctx context.Context, _ string) (<-chan struct{}, error) {
	hints := make(chan struct{})
	go func() {
		for ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
			select {
			case hints <- struct{}{}:
			default:
			}
		}
	}()
	return hints, nil
}

// TestAcquirerForgets: what the looks of an acquirer remember doesn't grow with the locks that come and go, on
// whichever page.
func TestAcquirerForgets(t *testing.T) {
	bubble(t, memory.Options{PageSize: 3}, func(t *testing.T, w *world) {
		m, memory := w.machine(), verdict.Memory{}
		for round := range 10 {
			var keys []string
			for i := range 7 {
				keys = append(keys, fmt.Sprintf("index/lock.shared/%d-%d", i, round))
				w.put(keys[i], nil)
			}
			for range 2 {
				_, err := m.look(t.Context(), m.try(Exclusive), memory)
				assert.OK(t, err)
				equal(t, "locks that are remembered", len(memory), len(keys))
			}
			for _, key := range keys {
				w.delete(key)
			}
		}
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
	m := w.machine()
	m.pace, m.rand = p, rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	m.hooks.Before(slow("", "", roundTrip))
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

// paces makes TestHandOver measure other paces, too: go test -run TestHandOver -v ./replock -paces
var paces = flag.Bool("paces", false, "measure the hand-over at other paces, too")

// TestHandOver: a waiter gets a lock a hundredth and a half of its wait after the release, at the
// latest, or less than half a second, and eight round trips. It sends no more than a request per
// second. docs/evidence/benchmarks.md has the table that -paces prints.
func TestHandOver(t *testing.T) {
	n := rounds.Fewer(20, 10)
	if *paces {
		n = 100
	}
	all := holds(n)
	for _, mode := range []Mode{Shared, Exclusive} {
		delays, perHour := handOver(t, ownPace, mode, all)
		for i, d := range delays {
			most := ownPace.after(all[i])*3/2 + 8*roundTrip
			assert.That(t, d <= most, "%s: let in %v after the release, and %v after it came, want %v", mode, d, all[i], most)
		}
		assert.That(t, perHour <= 3600, "%s: %.0f requests per hour", mode, perHour)
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

// TestHandOverOfWhatCannotBeRead: a lock whose body a waiter doesn't understand is read, too, to see when it is gone,
// and so is the one that takes its place. A poll can come just then, but not in each of several scenes.
func TestHandOverOfWhatCannotBeRead(t *testing.T) {
	eachOf(t, []string{"\x01 this is ciphertext", "?", "\x01 this, too", "??", "???"}, func(t *testing.T, w *world, body string) {
		w.put(pointer, []byte(body))
		m := w.machine()
		p := m.wants(t, Exclusive, 2*time.Minute)
		time.Sleep(31 * time.Second) // at 30 s the ticket is refreshed, and a poll comes
		p.waits(t)
		w.delete(pointer)
		m.hooks.Before(first("list", "", func(hookstore.Request) error { w.put(pointer, []byte(body+".")); return nil }))
		time.Sleep(40 * time.Second)
		p.waits(t)
		w.delete(pointer)
		began := time.Now()
		k := p.got(t)
		took(t, began, 0, ownPace.after(75*time.Second)*3/2+time.Second)
		mustRelease(t, k)
	})
}

func logPace(t *testing.T, p pace, mode Mode, delays []time.Duration, perHour float64) {
	d := slices.Sorted(slices.Values(delays))
	median, p90 := d[len(d)/2], d[len(d)*9/10]
	t.Logf("%g of the wait, from %v to %v, %s: median %.2f s, p90 %.2f s, %.0f requests per hour", p.share, p.first, p.last, mode, median.Seconds(), p90.Seconds(), perHour)
}

// requestsIn returns the requests of all machines in the next d, by kind, and the largest number of one machine.
func requestsIn(d time.Duration, machines []*machine) (sum map[string]int, most int) {
	time.Sleep(d)
	sum = map[string]int{}
	for _, m := range machines {
		all, by := m.hooks.Count()
		most = max(most, all)
		for op, n := range by {
			sum[op] += n
		}
	}
	return sum, most
}

// TestWaitersPerHour counts the requests of 1, 10 and 100 waiters in the first ten seconds and in an hour's wait.
// docs/evidence/benchmarks.md has the table that it prints.
func TestWaitersPerHour(t *testing.T) {
	for _, n := range rounds.Fewer([]int{1, 10, 100}, []int{1, 10}) {
		bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
			w.machine().takes(t, Exclusive)
			time.Sleep(10 * time.Second)
			var waiters []*machine
			var waits []*pendingAcquire
			for i := range n {
				m := w.paced(ownPace, uint64(i))
				waiters, waits = append(waiters, m), append(waits, m.wants(t, mode, Forever))
			}
			begin, first := requestsIn(10*time.Second, waiters)
			sum, most := requestsIn(time.Hour-10*time.Second, waiters)
			most += first
			total := 0
			for op, n := range begin {
				sum[op] += n
				total += n
			}
			t.Logf("| %d %s | %d | %d | %d | %d | %d | %d |", n, mode, begin["get"], begin["list"], begin["put"], sum["get"], sum["list"], sum["put"])
			// Exclusive ones come one after the other: the more waiters come before one, the more seldom it
			// polls, and reads the blocker.
			if mode == Exclusive && n == 10 && (total > 350 || sum["get"] > 2200 || sum["list"] > 3000) {
				t.Errorf("%d: %v in 10 s, and in an hour %v, want 350 in all, 2,200 reads and 3,000 polls at most", n, begin, sum)
			}
			assert.That(t, most <= 3600+hintBurst, "%d: one of them sent %d requests in an hour", n, most)
			for _, p := range waits {
				p.ends(nil)
			}
		})
	}
}

// TestWaitIsTheRule: without an option an acquire waits until it has the lock, and a try doesn't wait, whatever its
// options are.
func TestWaitIsTheRule(t *testing.T) {
	const held = 100 * time.Second
	work := func(context.Context) error { return nil }
	for name, acquire := range map[string]func(context.Context, *Locker) (*Lock, error){
		"Shared":    func(ctx context.Context, l *Locker) (*Lock, error) { return l.Shared(ctx, "x") },
		"Exclusive": func(ctx context.Context, l *Locker) (*Lock, error) { return l.Exclusive(ctx, "x") },
		"Do":        func(ctx context.Context, l *Locker) (*Lock, error) { return nil, l.Do(ctx, Exclusive, "x", work) },
		"forever":   func(ctx context.Context, l *Locker) (*Lock, error) { return l.Shared(ctx, "x", WithWait(Forever)) },
	} {
		do(t, func(t *testing.T, w *world) {
			holder := w.machine().takes(t, Exclusive)
			time.AfterFunc(held, func() { holder.Release(context.Background()) })
			start := time.Now()
			k, err := acquire(t.Context(), w.machine().Locker)
			assert.OK(t, err)
			assert.That(t, time.Since(start) >= held, "%s didn't wait", name)
			if k != nil {
				mustRelease(t, k)
			}
		})
	}
	for _, opts := range [][]AcquireOption{nil, {WithWait(held)}} {
		holding(t, memory.Options{}, Exclusive, func(t *testing.T, w *world, m *machine, _ *Lock) {
			start := time.Now()
			_, err := m.TryShared(t.Context(), "x", opts...)
			isAll(t, err, ErrHeld)
			_, err = w.machine().TryExclusive(t.Context(), "x", opts...)
			isAll(t, err, ErrHeld)
			took(t, start, 0, held/2)
		})
	}
}

// TestAttemptEndsForItsTicket: an attempt of a waiter stops looking again when its ticket must be refreshed, and at the
// latest a request before its lease ends.
func TestAttemptEndsForItsTicket(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		now := a.clock.Elapsed()
		q := a.newQueue(t.Context(), Exclusive, "x", nil)
		for sent, want := range map[time.Duration]time.Duration{
			now - 20*time.Second: now + 10*time.Second, now + time.Hour: now + a.times.Deadline - a.times.Timeout,
		} {
			q.ticket = &attempt{sent: sent}
			equal(t, "until", q.decidesBy(&attempt{deadline: now + a.times.Deadline}), want)
		}
	})
}
