package verdict

import (
	"slices"
	"time"

	"github.com/repolock/repolock/replock/internal/wire"
)

// If several acquirers conflict at the same time, one of them looks again a few times (outlasts,
// WorthAnother), and the others withdraw.
const (
	// Transient is the age up to which a flag can belong to an acquirer that is about to withdraw
	// it. On a slow store it is withdrawTrips round trips more.
	Transient     = 3 * time.Second
	withdrawTrips = 6
	// Undecided is the age up to which a flag in the state acquiring can belong to an acquirer that
	// has not decided yet, however busy its machine is. On a slow store it is undecidedTrips round
	// trips more. A holder's flag has the state held after a second or two, or after half of its
	// ttl if another program wrote it.
	Undecided      = 40 * time.Second
	undecidedTrips = 20
)

// Outlasts reports whether all conflicting locks belong to acquirers that will withdraw because of
// us. Exclusive acquirers withdraw because of a shared one, and later exclusive acquirers because
// of the first. The bodies decide that, and not the time that the acquirers take, because each has
// its own pace. waited is the time since the first look of this attempt that found a conflict.
func (c Contender) Outlasts(f Findings, waited time.Duration) bool {
	most := Undecided + undecidedTrips*c.Trip
	if f.More > 0 || waited >= most {
		return false
	}
	return !slices.ContainsFunc(f.Live, func(e *Entry) bool {
		age, ok := e.Age(f.St, f.Now)
		return e.Err != nil || e.Verdict != Live || e.Lease.State != wire.StateAcquiring || ok && age > most ||
			!c.Shared && (e.Kind != wire.KindIntent || c.yieldsTo(e))
	})
}

// yieldsTo reports whether this exclusive acquirer yields to the owner of an entry: to the acquirer
// that has lock.exclusive, or else to an acquirer whose flag is older. So of any two, one yields.
func (c Contender) yieldsTo(e *Entry) bool {
	return e.Kind == wire.KindExclusive || e.Kind == wire.KindIntent && !c.Pointer && wire.Place(e.Key) < wire.Place(c.Flag)
}

// WorthAnother reports whether all conflicting locks can belong to acquirers that are about to
// withdraw, and this exclusive acquirer yields to none of them.
func (c Contender) WorthAnother(f Findings) bool {
	return f.More == 0 && !slices.ContainsFunc(f.Live, func(e *Entry) bool {
		return e.Verdict == Unreadable || c.yieldsTo(e) || !c.MayWithdraw(f, e)
	})
}

// MayWithdraw reports whether an entry can belong to an acquirer that is about to withdraw it.
func (c Contender) MayWithdraw(f Findings, e *Entry) bool {
	if e.Err == nil && e.Lease.State == wire.StateHeld || e.IsTicket() {
		return false
	}
	age, ok := e.Age(f.St, f.Now)
	return !ok || age <= c.Transience()
}

// Transience is the age up to which a flag can belong to an acquirer that is about to withdraw it.
func (c Contender) Transience() time.Duration {
	return Transient + withdrawTrips*c.Trip
}

// Contender is an acquirer whose flag is stored, and that has seen the flags of others.
type Contender struct {
	Shared  bool
	Flag    string        // the key of its flag
	Pointer bool          // its last look has shown lock.exclusive as its own
	Trip    time.Duration // the longest of its fastest round trips
}
