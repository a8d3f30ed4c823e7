package replock

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store/memory"
)

// nearTrip is a round trip of a directory on a local disk, and farTrip one of a store on another continent.
const nearTrip, farTrip = 300 * time.Microsecond, 400 * time.Millisecond

// far is a machine whose requests take a trip each, and whose store reports deletions.
func (w *world) far(trip time.Duration, seed int) *machine {
	m := w.machine()
	m.rand = rand.NewChaCha8([32]byte{byte(seed), byte(w.count)})
	m.hooks.Watched = true
	m.hooks.Before(slow("", "", trip))
	return m
}

// TestCollisions: if acquirers come at once, each of them has had the lock after some round trips. On a quick store no
// fixed pause delays them.
func TestCollisions(t *testing.T) {
	const s, x = Shared, Exclusive
	for _, c := range []struct {
		modes []Mode
		near  time.Duration
		far   time.Duration // in round trips
	}{
		{[]Mode{x, x}, 20 * time.Millisecond, 15},
		{[]Mode{s, x}, 20 * time.Millisecond, 26},
		{[]Mode{s, s}, 2 * time.Millisecond, 4},
		{[]Mode{x, s, s, x}, 30 * time.Millisecond, 34},
		{[]Mode{x, x, x, x}, 30 * time.Millisecond, 34},
	} {
		for trip, limit := range map[time.Duration]time.Duration{nearTrip: c.near, farTrip: c.far * farTrip} {
			most, requests := time.Duration(0), 0
			for seed := range 20 {
				do(t, func(t *testing.T, w *world) {
					var group sync.WaitGroup
					var machines []*machine
					began := time.Now()
					for _, mode := range c.modes {
						m := w.far(trip, seed)
						machines = append(machines, m)
						group.Go(func() {
							k := m.takes(t, mode, WithWait(time.Hour))
							time.Sleep(trip / 10)
							mustRelease(t, k)
						})
					}
					group.Wait()
					most = max(most, time.Since(began))
					sent, _ := requestsIn(0, machines)
					n := 0
					for _, by := range sent {
						n += by
					}
					requests = max(requests, n)
					w.empty()
				})
			}
			t.Logf("%v, round trips of %v: %v, %.0f trips, %d requests", c.modes, trip, most, float64(most)/float64(trip), requests)
			assert.That(t, most <= limit, "%v, round trips of %v: %v until the last release, want %v at most", c.modes, trip, most, limit)
		}
	}
}

// TestQueuesBesideAShared: an exclusive acquirer that can wait queues as soon as it sees a shared flag, because a shared
// acquirer stays until the exclusive one has withdrawn.
func TestQueuesBesideAShared(t *testing.T) {
	eachOf(t, []time.Duration{nearTrip, farTrip}, func(t *testing.T, w *world, trip time.Duration) {
		k := w.machine().takes(t, Shared)
		m := w.far(trip, 0)
		p := m.wants(t, Exclusive, Forever)
		time.Sleep(10 * trip)
		equal(t, "tickets", len(w.tickets()), 1)
		p.waits(t)
		mustRelease(t, k)
		mustRelease(t, p.got(t))
	})
	do(t, func(t *testing.T, w *world) {
		for wait, queues := range map[time.Duration]bool{0: false, time.Second: true} {
			q := w.machine().newQueue(t.Context(), Exclusive, "x", []AcquireOption{WithWait(wait)})
			a, err := q.newAttempt()
			assert.OK(t, err)
			equal(t, "it queues at a shared flag", a.queues, queues)
			q.ticket = a
			a, err = q.newAttempt()
			assert.OK(t, err)
			equal(t, "it queues at a shared flag although it has a ticket", a.queues, false)
		}
	})
}

// TestCrowdKeepsNoAcquirerOut: an exclusive waiter acquires although shared acquirers come again and again, and they
// hold together before and after.
func TestCrowdKeepsNoAcquirerOut(t *testing.T) {
	eachOf(t, []time.Duration{nearTrip, farTrip}, func(t *testing.T, w *world, trip time.Duration) {
		var over atomic.Bool
		var hold, most atomic.Int64
		var group sync.WaitGroup
		for i := range 8 {
			m := w.far(trip, i)
			group.Go(func() {
				time.Sleep(time.Duration(i) * trip)
				for !over.Load() {
					k := m.takes(t, Shared, WithWait(time.Hour))
					most.Store(max(most.Load(), hold.Add(1)))
					time.Sleep(5 * trip)
					hold.Add(-1)
					mustRelease(t, k)
				}
			})
		}
		m := w.far(trip, 8)
		for range 5 {
			time.Sleep(20 * trip)
			began := time.Now()
			k := m.takes(t, Exclusive, WithWait(time.Hour))
			took(t, began, 0, 60*trip+100*time.Millisecond)
			equal(t, "shared holders beside the exclusive one", hold.Load(), 0)
			time.Sleep(5 * trip)
			mustRelease(t, k)
		}
		over.Store(true)
		group.Wait()
		assert.That(t, most.Load() >= 4, "at most %d shared locks were held together", most.Load())
		w.empty()
	})
}

// TestCollisionsEndForTheTicket: a waiter gives shared acquirers the time to withdraw until its ticket must be refreshed.
// Then it yields, because one collision can follow another. An acquirer that doesn't wait has no ticket to lose.
func TestCollisionsEndForTheTicket(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		const left = time.Second // until the ticket must be refreshed
		for wait, then := range map[time.Duration]step{time.Hour: giveUp, 0: stepDown} {
			m := w.machine()
			q := m.newQueue(t.Context(), Exclusive, "x", []AcquireOption{WithWait(wait)})
			if wait > 0 {
				q.ticket = &attempt{sent: m.clock.Elapsed() + left - m.times.Interval}
			}
			a, err := q.newAttempt()
			assert.OK(t, err)
			m.date(a)
			q.decide.try.until = q.decidesBy(a)
			collides := func(want step) {
				t.Helper()
				f := verdict.Findings{Live: []*verdict.Entry{{Kind: wire.KindShared}}, Now: m.clock.Elapsed()}
				equal(t, fmt.Sprintf("step with a wait of %v", wait), q.decide.afterConflict(a, f).step, want)
			}
			collides(stepDown)
			time.Sleep(left - time.Nanosecond)
			collides(stepDown)
			time.Sleep(time.Nanosecond)
			collides(then)
		}
	})
}

// TestPauseAfter: the first pause of a collision is two round trips, but at least 4 and at most 100 ms. Each later one is
// twice as long, up to a bound.
func TestPauseAfter(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		trip time.Duration
		n    int
		want time.Duration
	}{
		{0, 1, 4 * ms},
		{nearTrip, 1, 4 * ms},
		{nearTrip, 2, 8 * ms},
		{nearTrip, 7, 256 * ms},
		{nearTrip, 8, mostStay},
		{nearTrip, 1000, mostStay},
		{40 * ms, 1, 80 * ms},
		{40 * ms, 2, 160 * ms},
		{farTrip, 1, firstAgain},
		{farTrip, 3, mostStay},
	} {
		a := &attempt{trips: new(trips)}
		a.trips.list.note(c.trip)
		equal(t, "pause", a.pauseAfter(c.n, mostStay), c.want)
	}
}

// TestReturnWaitsForATime: a lock that is being resumed gives an acquirer of unknown age twice the time that it needs to
// withdraw, and then counts as lost.
func TestReturnWaitsForATime(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m := w.machine()
		a, f := m.try(Shared), verdict.Findings{Live: []*verdict.Entry{{Kind: wire.KindIntent}}}
		enough := 2 * a.contender(0).Transience()
		equal(t, "step in time", m.afterReturn(a, f, 1, enough).step, lookAgain)
		equal(t, "step after it", m.afterReturn(a, f, 100, enough+1).step, giveUp)
	})
}

// TestVanishedIsSeenSoon: if a listed lock was deleted before its body was read, an acquirer on a quick store has the
// lock some milliseconds later.
func TestVanishedIsSeenSoon(t *testing.T) {
	bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
		k, m := w.machine().takes(t, Shared+Exclusive-mode), w.far(nearTrip, 0)
		m.hooks.Before(inTurn(slow("", "", nearTrip), first("get", "", func(hookstore.Request) error { k.Release(t.Context()); return nil })))
		began := time.Now()
		lock := m.takes(t, mode)
		took(t, began, 0, 20*time.Millisecond)
		mustRelease(t, lock)
	})
}

// TestReadsBehindWaiters: a waiter behind n others reads the blocker n+1 times as seldom as the first one.
func TestReadsBehindWaiters(t *testing.T) {
	bubble(t, memory.Options{}, func(t *testing.T, w *world) {
		m := w.machine()
		m.pace = pace{first: time.Second, last: time.Second}
		q := m.newQueue(t.Context(), Exclusive, "x", nil)
		ticket := &verdict.Entry{Kind: wire.KindIntent}
		ticket.Lease.State = wire.StateWaiting
		for _, n := range []int{0, 1, 3} {
			var f verdict.Findings
			for range n {
				f.Ahead = append(f.Ahead, ticket)
			}
			least, most := time.Hour, time.Duration(0)
			for range 1000 {
				d := q.untilRead(ticket, f) / time.Duration(n+1)
				least, most = min(least, d), max(most, d)
			}
			assert.That(t, least >= time.Second/2 && least < 6*time.Second/10 && most > 14*time.Second/10 && most <= 3*time.Second/2, "behind %d: a read after %d times %v to %v", n, n+1, least, most)
		}
	})
}

// TestPausesAfterClaims: an acquirer looks at once after a claim whose put was answered, however many there were. It
// pauses only if another acquirer was faster twice, and never for longer than a collision's pause.
func TestPausesAfterClaims(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m := w.machine()
		q := m.newQueue(t.Context(), Exclusive, "x", nil)
		a, err := q.newAttempt()
		assert.OK(t, err)
		for n, want := range []time.Duration{0, firstAgain, 2 * firstAgain, mostStay, mostStay, mostStay, mostStay} {
			equal(t, fmt.Sprintf("pause after %d refused claims", n+1), q.decide.afterClaim(a), decision{step: lookAgain, pause: want})
		}
		a.claimed("etag")
		equal(t, "after a claim that was answered", q.decide.afterClaim(a), decision{step: lookAgain})
	})
}
