package replock

import (
	"context"
	"slices"
	"time"
)

// Of an exclusive acquirer and others that come at the same time, the one that can win
// looks again a few times, while the others withdraw.
const (
	// transient is the age up to which a flag can be that of an acquirer that is
	// about to withdraw it; on a slow store, withdrawTrips round trips more.
	transient     = 3 * time.Second
	withdrawTrips = 6
	// outlastTime is for how long a shared acquirer looks again; on a slow store, outlastTrips
	// round trips more. An exclusive one gives up in 0.7 s and some sixteen round trips.
	outlastTime  = 2 * time.Second
	outlastTrips = 20
)

// mayOutlast reports whether only exclusive acquirers that have just come, and will withdraw
// soon, are in a shared acquirer's way. waited is how long it has looked again.
func (l *Locker) mayOutlast(t *try, f findings, waited time.Duration) bool {
	if f.more > 0 || waited >= outlastTime+outlastTrips*t.trips.slowest() {
		return false
	}
	return !slices.ContainsFunc(f.live, func(e *entry) bool {
		age, ok := e.age(f.st, f.now)
		return e.err != nil || e.verdict != Live || e.lease.State != StateAcquiring || ok && age-waited > l.transience(t)
	})
}

// stepBack takes lock.exclusive down while shared locks are in the way, because it keeps other
// clients out as long as it stands. It reports whether one request has done that: after a second
// one, which can still arrive, lock.exclusive cannot be put again.
func (l *Locker) stepBack(ctx context.Context, t *try) bool {
	if !t.exclusive.maybe {
		return true
	}
	key := t.exclusive.key
	_, err := once(ctx, l.times.Timeout+2*t.trips.slowest(), "delete "+key, func(ctx context.Context) (nothing, error) {
		return nothing{}, l.ifOurs(ctx, t, func(etag string) error { return l.deleteSeen(ctx, key, etag) })
	})
	if err != nil || !t.exclusive.put {
		return false
	}
	t.exclusive = object{key: key, maybe: t.exclusive.twice, twice: t.exclusive.twice}
	return true
}

// worthAnother reports whether all locks in an exclusive acquirer's way can be about to
// withdraw, and it is not for us to yield: to the acquirer that has lock.exclusive, or if there
// is none, to the one that came first.
func (l *Locker) worthAnother(t *try, f findings) bool {
	if f.more > 0 {
		return false
	}
	for _, e := range f.live {
		if e.verdict == Unreadable || e.kind == kindExclusive {
			return false
		}
		if e.kind == kindIntent && !t.exclusive.listed && place(e.Key) < t.place {
			return false
		}
		if !l.mayWithdraw(t, f, e) {
			return false
		}
	}
	return true
}

// mayWithdraw reports whether an entry can be of an acquirer that has not looked yet.
func (l *Locker) mayWithdraw(t *try, f findings, e *entry) bool {
	if e.err == nil && e.lease.State == StateHeld || e.isTicket() {
		return false
	}
	age, ok := e.age(f.st, f.now)
	return !ok || age <= l.transience(t)
}

// transience is the greatest age of a flag that is about to be withdrawn.
func (l *Locker) transience(t *try) time.Duration {
	return transient + withdrawTrips*t.trips.slowest()
}
