package replock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// earlier is a machine that puts its tickets under the keys of flags, as clients of earlier versions do.
func (w *world) earlier() *machine {
	m := w.machine()
	m.hooks.Store = &unmarked{Store: w.mem, tickets: map[string]bool{}}
	return m
}

// unmarked is a store whose client puts its tickets under the keys of flags.
type unmarked struct {
	*memory.Store
	mu      sync.Mutex
	tickets map[string]bool
}

func (u *unmarked) key(key string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	flag, marked := strings.CutSuffix(key, "-w")
	if marked && u.tickets[flag] {
		return flag
	}
	return key
}

func (u *unmarked) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if flag, marked := strings.CutSuffix(key, "-w"); marked {
		u.mu.Lock()
		u.tickets[flag] = true
		u.mu.Unlock()
	}
	return u.Store.Put(ctx, u.key(key), body, opts)
}

func (u *unmarked) Delete(ctx context.Context, key string) error {
	return u.Store.Delete(ctx, u.key(key))
}

func (u *unmarked) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := u.Store.List(ctx, prefix, cursor)
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, o := range page.Objects {
		if u.tickets[o.Key] {
			page.Objects[i].Key += "-w"
		}
	}
	return page, err
}

// TestEarlierTickets: waiters of this version and of the one before, whose tickets only their bodies show, are served in
// the order in which they came, and shared ones that come together hold together.
func TestEarlierTickets(t *testing.T) {
	const s, x = Shared, Exclusive
	eachOf(t, [][]Mode{{x, x, x, x, x, x, x, x}, {s, s, x, s, x, x, s, s, x}}, func(t *testing.T, w *world, modes []Mode) {
		k := w.machine().takes(t, Exclusive)
		time.Sleep(10 * time.Second)
		var served notes[string]
		var want []string
		var all sync.WaitGroup
		turn := 0
		for i, mode := range modes {
			if i == 0 || mode == Exclusive || modes[i-1] == Exclusive {
				turn++
			}
			m := w.machine()
			if i%2 == 0 || i%5 == 0 {
				m = w.earlier()
			}
			name := fmt.Sprintf("%02d %v", turn, mode)
			want = append(want, name)
			p := m.wants(t, mode, Forever)
			all.Go(func() {
				lock := p.got(t)
				served.add(name)
				time.Sleep(20 * time.Second)
				lock.Release(t.Context())
			})
			time.Sleep(time.Second)
		}
		tickets := w.tickets()
		marked := slices.DeleteFunc(slices.Clone(tickets), func(key string) bool { return !w.machine().keys.IsTicket(key) })
		assert.That(t, len(tickets) == len(modes) && len(marked) > 1 && len(marked) < len(modes)-1, "tickets: %v", tickets)
		k.Release(t.Context())
		all.Wait()
		assert.Equal(t, served.got(), want, "served in the order")
		w.empty()
	})
}

// ticket puts the ticket of a waiter of this version that came at this time, as its body or another one.
func (w *world) ticket(m *machine, mode Mode, came time.Time, body []byte) string {
	a := m.try(mode)
	m.date(a)
	a.body.State = wire.StateWaiting
	key := m.keys.Intent(came, a.id)
	if mode == Shared {
		key = m.keys.SharedFlag(came, a.id)
	}
	if body == nil {
		body = a.body.Encode()
	}
	w.put(wire.Ticket(key), body)
	return wire.Ticket(key)
}

// TestTicketsBehind: an acquirer ignores the tickets of waiters behind it by their keys, and reads none. It reaps them if
// they are stale, and sweeps them if they are emptied. A holder reads none either. A ticket before it conflicts, whatever
// its body is.
func TestTicketsBehind(t *testing.T) {
	bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
		holder := w.machine().takes(t, Exclusive)
		time.Sleep(10 * time.Second)
		first := w.machine()
		p := first.wants(t, mode, Forever)
		time.Sleep(2 * time.Second)
		later := w.machine()
		var behind []string
		for _, body := range [][]byte{nil, []byte("?"), nil} {
			behind = append(behind, w.ticket(later, Exclusive, time.Now(), body))
		}
		unreadable := behind[1]
		behind = append(behind, w.ticket(later, Shared, time.Now(), nil))
		slices.Sort(behind)
		first.hooks.Before(on("get", "", func(r hookstore.Request) {
			assert.That(t, !slices.Contains(behind, r.Key), "reads %s", r.Key)
		}))
		mustRelease(t, holder)
		lock := p.got(t)
		time.Sleep(DefaultLook)
		assert.OK(t, lock.Check(t.Context()))
		mustRelease(t, lock)
		w.stores(behind...)

		first.hooks.Before(nil)
		_, err := first.TryExclusive(t.Context(), "x") // they are before it
		isAll(t, err, ErrHeld)
		time.Sleep(2 * DefaultTTL)
		w.put(unreadable, nil)
		old := w.machine()
		q := old.newQueue(t.Context(), Exclusive, "x", nil)
		a, err := q.newAttempt()
		assert.OK(t, err)
		a.place = wire.FirstPlace
		_, err = old.enter(t.Context(), a, q)
		assert.OK(t, err)
		old.withdraw(t.Context(), a, ErrHeld)
		w.empty()
	})
}

// TestReadsOnePredecessor: a waiter reads one ticket of those before it, the last, and one lock. If the owner of that
// ticket dies, it reads the next one.
func TestReadsOnePredecessor(t *testing.T) {
	bubble(t, memory.Options{}, func(t *testing.T, w *world) {
		w.machine().takes(t, Exclusive)
		time.Sleep(10 * time.Second)
		var machines []*machine
		for range 6 {
			m := w.machine()
			machines = append(machines, m)
			m.wants(t, Exclusive, Forever)
			time.Sleep(time.Second)
		}
		tickets := w.tickets()
		equal(t, "tickets", len(tickets), 6)
		m := w.machine()
		m.pace = pace{}
		var reads notes[string]
		m.hooks.Before(on("get", "", func(r hookstore.Request) { reads.add(r.Key) }))
		p := m.wants(t, Exclusive, Forever)
		time.Sleep(10 * time.Second)
		read := slices.DeleteFunc(reads.got(), func(key string) bool { return key == pointer || !strings.HasSuffix(key, "-w") })
		assert.Equal(t, slices.Compact(read), []string{tickets[5]}, "tickets that it reads")
		machines[5].hooks.Before(outage)
		time.Sleep(3 * DefaultTTL)
		read = slices.DeleteFunc(reads.got(), func(key string) bool { return key == pointer || !strings.HasSuffix(key, "-w") })
		assert.Equal(t, slices.Compact(read), []string{tickets[5], tickets[4]}, "tickets that it reads")
		p.waits(t)
		p.ends(nil)
	})
}

// TestArrives: if a listing must come before the first put, an acquirer that can wait queues at once when it shows a
// holder or a waiter, and puts no flag. Otherwise, and beside an acquirer that might withdraw, it makes an attempt. An
// acquirer that can't wait is refused by an attempt.
func TestArrives(t *testing.T) {
	creates := memory.Options{PutCreates: true}
	flags := func(m *machine) (puts *notes[string]) {
		puts = &notes[string]{}
		m.hooks.Before(on("put", "", func(r hookstore.Request) {
			if !m.keys.IsTicket(r.Key) {
				puts.add(r.Key)
			}
		}))
		return puts
	}
	bothModes(t, creates, func(t *testing.T, w *world, mode Mode) {
		holder := w.machine().takes(t, Exclusive)
		time.Sleep(10 * time.Second)
		m := w.machine()
		puts := flags(m)
		p := m.wants(t, mode, Forever)
		time.Sleep(5 * time.Second)
		p.waits(t)
		assert.That(t, len(puts.got()) == 0 && len(w.tickets()) == 1, "puts of flags: %v", puts.got())
		tries := w.machine()
		puts = flags(tries)
		tries.refused(t, mode, WithWait(0))
		assert.That(t, len(puts.got()) > 0, "it tried nothing")
		mustRelease(t, holder)
		mustRelease(t, p.got(t))
		w.empty()
	})
	bubble(t, creates, func(t *testing.T, w *world) {
		other := w.machine().try(Exclusive)
		w.machine().date(other)
		w.put(other.flag.key, other.body.Encode()) // it is acquiring
		m := w.machine()
		puts := flags(m)
		m.wants(t, Shared, Forever)
		time.Sleep(100 * time.Millisecond)
		assert.That(t, len(puts.got()) == 1, "beside an acquirer: %v", puts.got())
	})
	bubble(t, creates, func(t *testing.T, w *world) {
		m := w.machine()
		m.hooks.Before(fails("list", "", store.ErrNotFound))
		_, err := m.lock(t.Context(), Shared, "x")
		isAll(t, err, store.ErrNotFound)
		assert.That(t, strings.HasPrefix(err.Error(), "looking for other locks"), "%v", err)
		w.empty()
	})
}

// TestGoneIsFree: if the only conflicting lock is gone, the first waiter begins an attempt without another poll. Behind
// another waiter, or if another lock conflicts, it polls.
func TestGoneIsFree(t *testing.T) {
	for others, polls := range []int{0, 1} {
		bubble(t, memory.Options{}, func(t *testing.T, w *world) {
			k := w.machine().takes(t, Shared)
			for range others {
				w.machine().takes(t, Shared)
			}
			time.Sleep(time.Minute)
			m := w.machine()
			m.hooks.Watched = true
			p := m.wants(t, Exclusive, Forever)
			time.Sleep(70 * time.Second) // its ticket needn't be refreshed now
			var ops notes[string]
			m.hooks.Before(on("", "", func(r hookstore.Request) { ops.add(r.Op) }))
			locks := slices.DeleteFunc(w.keys(), func(key string) bool { return !strings.Contains(key, "shared") })
			if others > 0 && locks[0] == k.Key() { // the blocker is the last one
				k = nil
				w.delete(locks[1])
			} else {
				mustRelease(t, k)
			}
			time.Sleep(time.Millisecond)
			got := ops.got()
			at := slices.IndexFunc(got, func(op string) bool { return op != "get" })
			assert.That(t, at >= 0 && (got[at] == "list") == (polls == 1), "with %d others: %v", others, got)
			if others == 0 {
				mustRelease(t, p.got(t))
			} else {
				p.ends(nil)
			}
		})
	}
}

// TestDrain lets waiters of a queue hold the lock one after another, each for a while, and prints the table of
// docs/evidence/benchmarks.md: how long the queue takes, the worst time for which no one holds the lock, and the
// requests of all waiters in the first ten seconds and from the first release on.
func TestDrain(t *testing.T) {
	type row struct {
		n          int
		trip, hold time.Duration
		drain      time.Duration
		worst      time.Duration
		first      int // requests in the first 10 s
	}
	rows := []row{
		{10, 0, 200 * time.Millisecond, 5 * time.Second, 800 * time.Millisecond, 500},
		{10, 40 * time.Millisecond, time.Second, 15 * time.Second, 800 * time.Millisecond, 300},
		{100, time.Millisecond, 50 * time.Millisecond, 25 * time.Second, 4 * time.Second, 1000},
		{100, 40 * time.Millisecond, 50 * time.Millisecond, 40 * time.Second, 2 * time.Second, 1000},
		{100, 40 * time.Millisecond, time.Second, 150 * time.Second, time.Second, 1000},
	}
	for _, r := range rounds.Fewer(append(rows, row{300, 40 * time.Millisecond, time.Second, 450 * time.Second, time.Second, 3300}), rows) {
		bubble(t, memory.Options{PutCreates: true}, func(t *testing.T, w *world) {
			k := w.machine().takes(t, Exclusive)
			time.Sleep(5 * time.Second)
			began := time.Now()
			var machines []*machine
			holds := make(chan *Lock)
			for i := range r.n {
				m := w.machine()
				m.rand = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)})
				m.hooks.Before(slow("", "", r.trip))
				machines = append(machines, m)
				p := m.wants(t, Exclusive, Forever)
				go func() { holds <- p.got(t) }()
				time.Sleep(10 * time.Millisecond)
			}
			first, _ := requestsIn(10*time.Second-time.Since(began), machines)
			mustRelease(t, k)
			start := time.Now()
			free, worst := start, time.Duration(0)
			for range r.n {
				lock := <-holds
				worst = max(worst, time.Since(free))
				time.Sleep(r.hold)
				mustRelease(t, lock)
				free = time.Now()
			}
			drain := time.Since(start)
			rest, _ := requestsIn(0, machines)
			sum := func(by map[string]int) (n int) {
				for _, v := range by {
					n += v
				}
				return n
			}
			t.Logf("| %d | %v | %v | %.1f s | %.2f s | %d | %d |", r.n, r.trip, r.hold, drain.Seconds(), worst.Seconds(), sum(first), sum(rest))
			assert.That(t, drain <= r.drain && worst <= r.worst && sum(first) <= r.first,
				"%d waiters: %v, the worst hand-over %v, %d requests in the first 10 s; want %v, %v and %d at most", r.n, drain, worst, sum(first), r.drain, r.worst, r.first)
			w.empty()
		})
	}
}

// TestLikely: which entries a look reads first.
func TestLikely(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m := w.machine()
		entry := func(key string, size int64, modTime time.Time) *verdict.Entry {
			return &verdict.Entry{Object: store.Object{Key: key, Size: size, ModTime: modTime}, Kind: m.keys.Kind(key), Marked: m.keys.IsTicket(key)}
		}
		now := time.Now()
		id := strings.Repeat("0", 32)
		at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
		intent := func(s int) string { return m.keys.Intent(at(s), id) }
		exclusive, flag := entry(m.keys.Exclusive(), 9, now), entry(intent(1), 9, now)
		before := []*verdict.Entry{entry(wire.Ticket(intent(2)), 9, now), entry(wire.Ticket(intent(3)), 9, now)}
		emptied, dead, behind := entry(wire.Ticket(intent(4)), 0, now), entry(wire.Ticket(intent(5)), 9, now.Add(-time.Hour)), entry(wire.Ticket(intent(9)), 9, now)
		f := &verdict.Findings{St: verdict.StoreTime{At: now}}
		all := []*verdict.Entry{exclusive, flag, before[0], before[1], emptied, dead, behind}
		a := &attempt{place: wire.Place(intent(6)), waits: true}
		type entries = []*verdict.Entry
		check := func(what string, in, ahead entries, rest entries, likely ...entries) {
			t.Helper()
			got, others := a.likely(f, in)
			assert.That(t, slices.EqualFunc(got, likely, slices.Equal[entries]), "%s: %v", what, got)
			assert.That(t, slices.Equal(others, rest), "%s: the rest: %v", what, others)
			assert.That(t, slices.Equal(a.ahead(f, in), ahead), "%s: ahead: %v", what, a.ahead(f, in))
		}
		check("a waiter", all, before, entries{exclusive, before[0], emptied, dead}, entries{flag, before[1]})
		check("lock.exclusive alone", entries{exclusive, before[0]}, before[:1], nil, entries{exclusive, before[0]})
		check("no ticket", entries{exclusive, flag}, nil, nil, entries{flag}, entries{exclusive})
		before[1].Verdict = verdict.Stale
		check("behind a dead waiter", all, before[:1], entries{exclusive, before[1], emptied, dead}, entries{flag, before[0]})
		before[1].Verdict = verdict.Live
		crashed := entry(intent(0), 9, now)
		crashed.Verdict = verdict.Stale
		check("beside a dead holder", entries{crashed, flag}, nil, nil, entries{flag}, entries{crashed})
		a.polls = true
		check("a poll", entries{exclusive, flag}, nil, entries{exclusive}, entries{flag})
		second := entry(intent(2), 9, now)
		check("a poll that shows two locks", entries{flag, second}, nil, nil, entries{flag, second})
		a.polls, a.waits = false, false
		check("locks first", all, before, entries{dead}, entries{exclusive, flag, before[0], before[1], emptied})
		a.place = wire.FirstPlace
		check("the first", all, nil, entries{dead}, entries{exclusive, flag, emptied})
	})
}

// TestYieldsTo: an acquirer reads no further lock if Decide yields to one, whatever the others are, and it doesn't miss
// such a lock.
func TestYieldsTo(t *testing.T) {
	other := &verdict.Entry{Object: store.Object{Key: "index/lock.intent/d"}, Kind: wire.KindIntent, Verdict: verdict.Live}
	other.Lease.State = wire.StateAcquiring
	for _, kind := range []wire.Kind{wire.KindIntent, wire.KindShared} {
		for _, state := range []wire.State{wire.StateAcquiring, wire.StateHeld, wire.StateWaiting, ""} {
			for _, key := range []string{"a", "c"} {
				for flags := range 16 {
					e := &verdict.Entry{Object: store.Object{Key: "index/lock.x/" + key}, Kind: kind, Verdict: verdict.Live, Read: true}
					if e.Lease.State = state; flags&1 != 0 {
						e.Err, e.Verdict = wire.ErrLarge, verdict.Unreadable
					}
					a := &attempt{mode: Shared, flag: object{key: "index/lock.intent/b"}, trips: new(trips), queues: flags&2 != 0}
					if a.listed.pointer = flags&4 != 0; flags&8 != 0 {
						a.mode = Exclusive
					}
					choice := a.contender(0).Decide(verdict.Findings{Live: []*verdict.Entry{e, other}}, 1, 0, true)
					if a.mode == Shared && state == "" && flags&1 == 0 {
						continue // another client's, which it doesn't wait for either
					}
					equal(t, fmt.Sprintf("%v beside %v %q %s, %04b", a.mode, kind, state, key, flags), a.yieldsTo(e), choice == verdict.Yield)
				}
			}
		}
	}
}

// TestFresh: a ticket is fresh until its ttl is over by the store's clock. If it wasn't read, its ttl is taken to be the
// default one or that of the reader.
func TestFresh(t *testing.T) {
	now := time.Now()
	f := &verdict.Findings{St: verdict.StoreTime{At: now}}
	for _, c := range []struct {
		age, ttl, ours time.Duration // a ttl of 0: not read
		carried, fresh bool
	}{
		{59 * time.Second, 0, 0, false, true},
		{60 * time.Second, 0, 0, false, false},
		{299 * time.Second, 0, 5 * time.Minute, false, true},
		{300 * time.Second, 0, 5 * time.Minute, false, false},
		{59 * time.Second, 0, 10 * time.Second, false, true},
		{10 * time.Second, 10 * time.Second, 0, false, false},
		{9 * time.Second, 10 * time.Second, 0, false, true},
		{599 * time.Second, 10 * time.Minute, 0, true, true},
		{20 * time.Second, 10 * time.Second, time.Hour, true, false},
	} {
		e := &verdict.Entry{Object: store.Object{ModTime: now.Add(-c.age)}, Read: c.ttl > 0 && !c.carried, Carried: c.carried}
		e.Lease.TTL = c.ttl
		a := &attempt{body: wire.Body{TTLSeconds: c.ours.Seconds()}}
		equal(t, fmt.Sprintf("%+v", c), a.isFresh(f, e), c.fresh)
	}
}

// behind is a waiter behind n tickets whose owners send nothing more.
func (w *world) behind(n int, hints bool) (m *machine, p *pendingAcquire, tickets []string) {
	long := func(o *Options) { o.TTL = time.Hour }
	other := w.machine(long)
	for i := range n {
		tickets = append(tickets, w.ticket(other, Exclusive, time.Now().Add(time.Duration(i-n)*time.Second), nil))
	}
	m = w.machine(long)
	m.hooks.Watched = hints
	p = m.wants(w.t, Exclusive, Forever)
	return m, p, tickets
}

// TestGoneInTheMiddle: if the ticket in the middle of those before a waiter is gone, the waiter polls, although it has
// read one ticket only.
func TestGoneInTheMiddle(t *testing.T) {
	bubble(t, memory.Options{}, func(t *testing.T, w *world) {
		m, p, tickets := w.behind(3, true)
		time.Sleep(time.Minute)
		var ops notes[string]
		m.hooks.Before(on("", "", func(r hookstore.Request) { ops.add(r.Op) }))
		w.delete(tickets[1])
		time.Sleep(time.Millisecond)
		assert.Equal(t, ops.got()[:2], []string{"get", "list"}, "the requests after the deletion")
		p.ends(nil)
	})
}

// TestGoneIsStillListed: if a listing shows a blocker that a read doesn't find, the waiter reads it no more, although it
// has never read that ticket's body.
func TestGoneIsStillListed(t *testing.T) {
	bubble(t, memory.Options{}, func(t *testing.T, w *world) {
		m, p, tickets := w.behind(3, false)
		time.Sleep(time.Second)
		var reads notes[string]
		m.hooks.Before(inTurn(on("get", "", func(r hookstore.Request) { reads.add(r.Key) }), fails("get", "", store.ErrNotFound)))
		time.Sleep(time.Minute)
		got := slices.DeleteFunc(reads.got(), func(key string) bool { return key != tickets[0] && key != tickets[1] })
		assert.Equal(t, got, tickets[1:2], "reads of the first two tickets")
		p.ends(nil)
	})
}

// TestAdvanceShortensThePause: if fewer waiters are before a waiter than at its last poll, its pauses begin again with
// the shortest, although the same objects conflict.
func TestAdvanceShortensThePause(t *testing.T) {
	bubble(t, memory.Options{}, func(t *testing.T, w *world) {
		m, p, tickets := w.behind(5, true)
		m.pace = pace{}
		time.Sleep(5 * time.Minute)
		var polls notes[time.Time]
		m.hooks.Before(on("list", "", func(hookstore.Request) { polls.add(time.Now()) }))
		w.delete(tickets[0])
		time.Sleep(time.Minute)
		got := polls.got()
		pause := got[1].Sub(got[0])
		assert.That(t, pause <= 10*time.Second, "the second poll comes %v after the first", pause)
		p.ends(nil)
	})
}

// TestBeat: the shortest pause between two reads is a number of round trips, and not less than 50 ms. A waiter that came
// with a crowd measures by its own reads that the store is quick again.
func TestBeat(t *testing.T) {
	for trip, want := range map[time.Duration]time.Duration{0: 50 * time.Millisecond, time.Millisecond: 50 * time.Millisecond, 10 * time.Millisecond: 200 * time.Millisecond} {
		q := &queue{}
		q.trips.list.note(trip)
		equal(t, "beat", q.beat(20), want)
		q = &queue{}
		q.trips.list.note(time.Second)
		q.hints.read.note(max(trip, 1))
		equal(t, "beat after a read", q.beat(20), want)
	}
}

// TestReadsInTime: w after a change a waiter behind n others pauses before a read for w/2, or for n + 1 times two round
// trips if that is longer. It never pauses for longer than n + 1 times a first waiter does.
func TestReadsInTime(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		trip, waited time.Duration
		ahead        int
		want         time.Duration
	}{
		{0, 0, 0, 50 * ms},
		{0, 2 * time.Second, 0, 50 * ms},
		{0, 4 * time.Second, 0, 250 * ms},
		{0, 2 * time.Second, 9, 500 * ms},
		{0, 4 * time.Second, 9, 2 * time.Second},
		{0, 6 * time.Second, 9, 2500 * ms},
		{0, 4 * time.Second, 99, 5 * time.Second},
		{0, 20 * time.Second, 99, 10 * time.Second},
		{40 * ms, 0, 0, 80 * ms},
		{40 * ms, 300 * ms, 0, 150 * ms},
		{40 * ms, time.Second, 0, 250 * ms},
		{40 * ms, 0, 9, 800 * ms},
		{40 * ms, 2 * time.Second, 9, time.Second},
		{40 * ms, time.Minute, 9, 6 * time.Second},
		{time.Second, 0, 9, 2500 * ms},
	} {
		sub(t, fmt.Sprintf("%+v", c), memory.Options{}, func(t *testing.T, w *world) {
			m := w.machine()
			m.pace = ownPace
			q := m.newQueue(t.Context(), Exclusive, "x", nil)
			q.hints.since = m.opts.Clock.Elapsed()
			q.hints.read.note(max(c.trip, 1))
			time.Sleep(c.waited)
			f := verdict.Findings{Ahead: make([]*verdict.Entry, c.ahead)}
			least, most := time.Hour, time.Duration(0)
			for range 1000 {
				d := q.untilRead(&verdict.Entry{}, f)
				least, most = min(least, d), max(most, d)
			}
			assert.That(t, least >= c.want/2 && least < c.want*6/10 && most > c.want*14/10 && most <= c.want*3/2, "pauses of %v to %v, want %v", least, most, c.want)
		})
	}
}

// TestIsBefore: an attempt ignores the later tickets of both modes, and no earlier one, no lock, no stale ticket and no
// emptied one.
func TestIsBefore(t *testing.T) {
	for _, kind := range []wire.Kind{wire.KindIntent, wire.KindShared} {
		ticket := func(place string, marked bool, v verdict.Verdict) *verdict.Entry {
			e := &verdict.Entry{Object: store.Object{Key: "index/lock.x/" + place}, Kind: kind, Marked: marked, Verdict: v}
			if !marked {
				e.Lease.State = wire.StateWaiting
			}
			return e
		}
		lock := ticket("c", false, verdict.Live)
		lock.Lease.State = wire.StateHeld
		for _, mode := range []Mode{Shared, Exclusive} {
			a := &attempt{mode: mode, place: "b"}
			for _, marked := range []bool{true, false} {
				assert.That(t, a.isBefore(ticket("c", marked, verdict.Live)) && a.isBefore(ticket("c", marked, verdict.Doubtful)), "%v: a later ticket", kind)
				assert.That(t, !a.isBefore(ticket("a", marked, verdict.Live)), "%v: an earlier ticket", kind)
				assert.That(t, !a.isBefore(ticket("c", marked, verdict.Stale)) && !a.isBefore(ticket("c", marked, verdict.Released)), "%v: a stale ticket", kind)
			}
			assert.That(t, !a.isBefore(lock), "%v: a lock", kind)
		}
	}
}

// TestYieldsUnread: an exclusive acquirer that can wait reads one of many flags if it yields to that one, and all if the
// first might withdraw for it.
func TestYieldsUnread(t *testing.T) {
	for _, c := range []struct {
		came  time.Duration // of the others
		reads int
	}{{-time.Second, 1}, {time.Second, 5}} {
		bubble(t, memory.Options{}, func(t *testing.T, w *world) {
			for i := range 5 {
				other := w.machine().try(Exclusive)
				w.machine().date(other)
				w.put(w.machine().keys.Intent(time.Now().Add(c.came+time.Duration(i)), other.id), other.body.Encode())
			}
			m := w.machine()
			q := m.newQueue(t.Context(), Exclusive, "x", nil)
			a, err := q.newAttempt()
			assert.OK(t, err)
			m.date(a)
			assert.OK(t, m.putFlag(t.Context(), a))
			m.hooks.Count()
			f, err := m.look(t.Context(), a, q.memory)
			assert.OK(t, err)
			_, by := m.hooks.Count()
			assert.That(t, by["get"] == c.reads && len(f.Live)+f.More == 5, "reads %d, %d live and %d more", by["get"], len(f.Live), f.More)
		})
	}
}

// TestNoticesInTime: on a quick store without hints the first waiter looks or reads often enough to notice within a
// second that its way is free, in the first minute of its wait.
func TestNoticesInTime(t *testing.T) {
	bubble(t, memory.Options{}, func(t *testing.T, w *world) {
		w.machine().takes(t, Exclusive)
		time.Sleep(10 * time.Second)
		m := w.machine()
		p := m.wants(t, Exclusive, Forever)
		sent := notes[time.Time]{all: []time.Time{time.Now()}}
		m.hooks.Before(on("", "", func(r hookstore.Request) {
			if r.Op == "get" || r.Op == "list" {
				sent.add(time.Now())
			}
		}))
		time.Sleep(time.Minute)
		all, worst := sent.got(), time.Duration(0)
		for i := range all[1:] {
			worst = max(worst, all[i+1].Sub(all[i]))
		}
		assert.That(t, worst <= time.Second, "the longest pause between two requests: %v", worst)
		p.ends(nil)
	})
}

// TestNotTheOnlyLock: if a waiter's last look has left a flag unread, the waiter polls when the lock that it has read is
// gone.
func TestNotTheOnlyLock(t *testing.T) {
	for name, c := range map[string]struct {
		later bool // the wait has polled
		opts  memory.Options
	}{"an attempt's look": {}, "a poll": {later: true}, "a later page": {true, memory.Options{PageSize: 2}}} {
		sub(t, name, c.opts, func(t *testing.T, w *world) {
			first := w.machine().takes(t, Shared)
			time.Sleep(time.Second)
			other := w.machine()
			if c.later {
				other.clock.setSkew(time.Hour)
			}
			other.takes(t, Shared)
			time.Sleep(10 * time.Second)
			m := w.machine()
			m.hooks.Watched = true
			p := m.wants(t, Exclusive, Forever)
			time.Sleep(300 * time.Millisecond)
			if c.later {
				time.Sleep(70 * time.Second)
			}
			var ops notes[string]
			m.hooks.Before(on("", "", func(r hookstore.Request) { ops.add(r.Op) }))
			mustRelease(t, first)
			time.Sleep(time.Millisecond)
			got := ops.got()
			at := slices.IndexFunc(got, func(op string) bool { return op != "get" })
			assert.That(t, at >= 0 && got[at] == "list", "the requests after the release: %v", got)
			p.ends(nil)
		})
	}
}

// TestNamesTheHolder: a waiter behind another one names the holder whatever its ttl is, and its pauses grow.
func TestNamesTheHolder(t *testing.T) {
	bubble(t, memory.Options{}, func(t *testing.T, w *world) {
		long := func(o *Options) { o.TTL = 10 * time.Minute }
		k := w.machine(long).takes(t, Exclusive)
		time.Sleep(10 * time.Second)
		before := w.machine(long).wants(t, Exclusive, Forever)
		time.Sleep(10 * time.Second)
		m := w.machine(long)
		p := m.wants(t, Exclusive, Forever)
		time.Sleep(10 * time.Minute)
		m.hooks.Count()
		time.Sleep(30 * time.Minute)
		for _, e := range m.seen() {
			assert.That(t, e.Kind != EventWaiting || slices.ContainsFunc(e.Holders, func(i Info) bool { return i.ID == k.ID() }), "%v after %v", e.Holders, e.Waited)
		}
		m.sent(t, between{"list": {100, 200}})
		p.ends(nil)
		before.ends(nil)
	})
}
