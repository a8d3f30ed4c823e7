package verdict

import (
	"slices"
	"time"

	"github.com/repolock/repolock/replock/internal/wire"
)

// Contender is an acquirer whose flag is stored, and whose look has found live locks of others.
type Contender struct {
	Shared  bool          // it acquires a shared lock
	Flag    string        // the key of its flag
	Pointer bool          // its last look showed that lock.exclusive is its own
	Trip    time.Duration // the longest of its fastest round trips
	Waits   bool          // it can wait, so that it yields only its turn
	Queues  bool          // it can wait, and has no ticket yet
	Paused  time.Duration // its pauses between the looks that found live locks, without the round trips in them
}

// Choice is the next step of a contender.
type Choice int

// The choices. None of them grants the lock.
const (
	Yield    Choice = iota // withdraw
	Stay                   // look again: the others withdraw because of us
	Again                  // look again: the others might withdraw for a reason of their own
	StepDown               // delete lock.exclusive, and then look again, as Again does
)

// Decide is the whole rule for acquirers that come at the same time.
//
// Each acquirer puts its flag and then looks, so of any two at least one sees the other. If both withdrew, neither
// would acquire the lock. So of any two, one goes first:
//
//  1. A shared acquirer goes before an exclusive one.
//  2. Of two exclusive acquirers, the one that has lock.exclusive goes first.
//  3. If neither has it, the one with the older flag goes first. The names of the flags decide that.
//
// The contender's last look decides what it does:
//
//   - Stay, if it goes before all others, and each of them is still acquiring its lock. They see our flag and
//     withdraw. How long that takes depends on their pace. So their bodies decide, and not the time.
//   - Again, if it is exclusive, no other goes before it by rule 2 or 3, and each other lock is so young that its
//     owner might be about to withdraw. It looks again until it has paused for patience, and at least
//     maxConflicts times. An acquirer that can wait does so only while mayStay is true: each look can end in another
//     collision, and meanwhile its ticket isn't refreshed.
//   - StepDown in place of Again, if one of the others is shared. While lock.exclusive is stored, it excludes
//     clients that look only at lock.exclusive. An acquirer that can queue yields instead: the shared acquirers stay
//     until its flag is gone, and its ticket keeps its place. With a ticket it steps down, because they yield to that.
//   - Yield, in all other cases.
//
// Safety doesn't rest on this rule, because Stay, Again and StepDown only lead to another look.
//
// looks is the number of looks of this attempt that found live locks, and waited the time since the first of them.
// mayStay is false if the contender's own lease, or its ticket, leaves no time to stay.
func (c Contender) Decide(f Findings, looks int, waited time.Duration, mayStay bool) Choice {
	undecided := Undecided + undecidedTrips*c.Trip
	all := func(is func(*Entry) bool) bool {
		return f.More == 0 && !slices.ContainsFunc(f.Live, func(e *Entry) bool { return !is(e) })
	}
	goesFirst := func(e *Entry) bool { // rules 2 and 3
		return e.Kind == wire.KindExclusive || e.Kind == wire.KindIntent && !c.Pointer && wire.Place(e.Key) < wire.Place(c.Flag)
	}
	withdraws := func(e *Entry) bool { // they withdraw because of our flag
		age, _ := e.Age(f.St, f.Now)
		return e.Err == nil && e.Verdict == Live && e.Lease.State == wire.StateAcquiring && age <= undecided &&
			(c.Shared || e.Kind == wire.KindIntent && !goesFirst(e))
	}
	mightWithdraw := func(e *Entry) bool {
		return e.Verdict != Unreadable && !goesFirst(e) && c.MayWithdraw(f, e)
	}
	switch {
	case mayStay && waited < undecided && all(withdraws):
		return Stay
	case c.Shared || c.Waits && !mayStay || looks > maxConflicts && c.Paused >= patience || !all(mightWithdraw):
		return Yield
	case !slices.ContainsFunc(f.Live, func(e *Entry) bool { return e.Kind == wire.KindShared }):
		return Again
	case c.Queues:
		return Yield
	default:
		return StepDown
	}
}

const (
	// maxConflicts is how often, at least, an exclusive acquirer looks again at live locks whose owners might be about to
	// withdraw them. These need up to seven round trips: put a flag, claim, look, read a body, and delete. patience is
	// the least sum of the pauses. It doesn't count the looks, because on a busy machine a single one can take longer.
	maxConflicts = 4
	patience     = 700 * time.Millisecond
	// Undecided is the age up to which a flag in the state acquiring can belong to an acquirer that has not decided
	// yet, however busy its machine is. On a slow store, undecidedTrips round trips are added to it. A holder's flag
	// has the state held after a second or two, or after half of its ttl if another program wrote it.
	Undecided      = 40 * time.Second
	undecidedTrips = 20
	// Transient is the age up to which a flag can belong to an acquirer that is about to withdraw it. On a slow store,
	// withdrawTrips round trips are added to it.
	Transient     = 3 * time.Second
	withdrawTrips = 6
)

// MayWithdraw reports whether an entry can belong to an acquirer that is about to withdraw it. A lock that is resumed,
// or checked after a pause, has no place in Decide's order, because it was held. It waits while MayWithdraw is true of
// all conflicting locks.
func (c Contender) MayWithdraw(f Findings, e *Entry) bool {
	if e.Err == nil && e.Lease.State == wire.StateHeld || e.IsTicket() {
		return false
	}
	age, _ := e.Age(f.St, f.Now)
	return age <= c.Transience()
}

// Transience is Transient for this contender's store.
func (c Contender) Transience() time.Duration {
	return Transient + withdrawTrips*c.Trip
}
