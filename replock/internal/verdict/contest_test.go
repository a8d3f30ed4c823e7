package verdict

import (
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock/internal/wire"
)

// TestDecide: who goes first of those that come at once, and what each of them does.
func TestDecide(t *testing.T) {
	const trip = time.Second
	const undecided, young = Undecided + undecidedTrips*trip, Transient + withdrawTrips*trip
	lock := func(key string, k wire.Kind, s wire.State, age time.Duration) *Entry {
		e := lockOf(far)
		e.Key, e.Kind, e.Verdict, e.Lease.State, e.ModTime = key, k, Live, s, wrote.Add(-age)
		return e
	}
	shared := func(age time.Duration) *Entry {
		return lock("index/lock.shared/2", wire.KindShared, wire.StateAcquiring, age)
	}
	earlier := lock("index/lock.intent/1", wire.KindIntent, wire.StateAcquiring, 0)
	later := lock("index/lock.intent/3", wire.KindIntent, wire.StateAcquiring, 0)
	pointer := lock("index/lock.exclusive", wire.KindExclusive, wire.StateAcquiring, 0)
	held := lock("index/lock.shared/2", wire.KindShared, wire.StateHeld, 0)
	ticket := lock("index/lock.intent/1", wire.KindIntent, wire.StateWaiting, 0)
	laterFor := func(age time.Duration) *Entry {
		return lock("index/lock.intent/3", wire.KindIntent, wire.StateAcquiring, age)
	}
	unreadable := lock("index/lock.intent/3", wire.KindIntent, "", 0)
	unreadable.Verdict, unreadable.Err = Unreadable, wire.ErrLarge
	unread := laterFor(0) // with the body of its earlier version
	unread.Err, unread.Carried = ErrUnread, true
	undated := laterFor(0)
	undated.ModTime = time.Time{}
	const isShared, isExclusive, hasPointer, queues, hasTicket = "shared", "exclusive", "exclusive with lock.exclusive", "exclusive that queues", "exclusive with a ticket"
	type row struct {
		who    string
		live   []*Entry
		looks  int
		waited time.Duration
		paused time.Duration
		late   bool // mayStay is false
		more   int
		want   Choice
	}
	of := func(live ...*Entry) []*Entry { return live }
	for n, c := range []row{
		// 1. A shared acquirer goes before an exclusive one.
		{who: isShared, live: of(earlier), want: Stay},
		{who: isShared, live: of(pointer, earlier), want: Stay},
		{who: isShared, live: of(pointer), waited: undecided - 1, want: Stay},
		{who: isShared, live: of(pointer), waited: undecided, want: Yield},
		{who: isShared, live: of(pointer), late: true, want: Yield},
		{who: isShared, live: of(later), waited: undecided, want: Yield},
		{who: isShared, live: of(unread), want: Yield},
		{who: isShared, live: of(pointer), more: 1, want: Yield},
		{who: isShared, live: of(laterFor(undecided)), want: Stay},
		{who: isShared, live: of(laterFor(undecided + 1)), want: Yield},
		{who: isShared, live: of(undated), want: Stay},
		{who: isShared, live: of(held), want: Yield},
		{who: isShared, live: of(ticket), want: Yield},
		{who: isShared, live: of(unreadable), want: Yield},
		{who: isExclusive, live: of(shared(0)), looks: 1, want: StepDown},
		{who: isExclusive, live: of(shared(young)), looks: maxConflicts, want: StepDown},
		{who: isExclusive, live: of(shared(0)), looks: maxConflicts, paused: patience, want: StepDown},
		{who: isExclusive, live: of(shared(0)), looks: maxConflicts + 1, paused: patience - 1, want: StepDown},
		{who: isExclusive, live: of(shared(0)), looks: maxConflicts + 1, paused: patience, want: Yield},
		{who: isExclusive, live: of(shared(young + 1)), looks: 1, want: Yield},
		{who: isExclusive, live: of(shared(0)), looks: 1, more: 1, want: Yield},
		{who: hasPointer, live: of(later, shared(0)), looks: 1, want: StepDown},
		{who: isExclusive, live: of(lock("index/lock.shared/1", wire.KindShared, wire.StateAcquiring, 0)), looks: 1, want: StepDown},
		{who: isExclusive, live: of(later, earlier, shared(0)), looks: 1, want: Yield},
		{who: isExclusive, live: of(held), looks: 1, want: Yield},
		{who: queues, live: of(shared(0)), looks: 1, want: Yield},
		{who: queues, live: of(later, shared(0)), looks: 1, want: Yield},
		{who: queues, live: of(later), want: Stay},
		{who: queues, live: of(later), looks: 1, waited: undecided, want: Again},
		{who: hasTicket, live: of(shared(0)), looks: 1, want: StepDown},
		{who: hasTicket, live: of(shared(0)), looks: 1, late: true, want: Yield},
		{who: hasTicket, live: of(later), looks: 1, waited: undecided, want: Again},
		{who: hasTicket, live: of(later), looks: 1, waited: undecided, late: true, want: Yield},
		{who: isExclusive, live: of(shared(0)), looks: 1, late: true, want: StepDown},

		// 2. The one that has lock.exclusive goes first.
		{who: isExclusive, live: of(pointer, later), looks: 1, want: Yield},
		{who: hasPointer, live: of(earlier), want: Stay},
		{who: hasPointer, live: of(earlier), looks: 1, late: true, want: Again},
		{who: hasPointer, live: of(ticket), looks: 1, want: Yield},

		// 3. The older flag goes first.
		{who: isExclusive, live: of(later), want: Stay},
		{who: isExclusive, live: of(undated), want: Stay},
		{who: isExclusive, live: of(earlier), looks: 1, want: Yield},
		{who: isExclusive, live: of(later), looks: maxConflicts, waited: undecided, want: Again},
		{who: isExclusive, live: of(later), looks: maxConflicts + 1, waited: undecided, paused: patience, want: Yield},
		{who: isExclusive, live: of(laterFor(undecided + 1)), looks: 1, want: Yield},
		{who: isExclusive, live: of(laterFor(young), unreadable), looks: 1, want: Yield},
	} {
		me := Contender{Shared: c.who == isShared, Flag: "index/lock.intent/2", Pointer: c.who == hasPointer, Trip: trip, Waits: c.who == queues || c.who == hasTicket, Queues: c.who == queues, Paused: c.paused}
		f := Findings{Live: c.live, More: c.more, St: StoreTime{At: wrote, Elapsed: seen}, Now: seen}
		assert.Equal(t, me.Decide(f, c.looks, c.waited, !c.late), c.want, "row ", n, ", ", c.who)
	}
}

// TestMayWithdraw: an encrypted lock and one without a date can be withdrawn, and a ticket can't.
func TestMayWithdraw(t *testing.T) {
	f := Findings{St: StoreTime{At: wrote.Add(time.Hour), Elapsed: seen}, Now: seen}
	old, undated, ticket := lockOf(far), lockOf(far), lockOf(far)
	for _, e := range []*Entry{old, undated, ticket} {
		e.Lease.State = wire.StateAcquiring
	}
	undated.ModTime, ticket.ModTime, ticket.Lease.State = time.Time{}, time.Time{}, wire.StateWaiting
	unread := lockOf(far) // with the body of its earlier version
	unread.Err, unread.ModTime = ErrUnread, time.Time{}
	sealed := &Entry{Err: wire.ErrEncrypted, Kind: wire.KindShared}
	for e, want := range map[*Entry]bool{old: false, undated: true, ticket: false, sealed: true, unread: true} {
		assert.Equal(t, Contender{}.MayWithdraw(f, e), want)
	}
	f.St.At = old.ModTime.Add(Transient + time.Second)
	for trip, want := range map[time.Duration]bool{time.Millisecond: false, time.Second: true} { // a slow store delays a withdrawal
		assert.Equal(t, Contender{Trip: trip}.MayWithdraw(f, old), want)
	}
}
