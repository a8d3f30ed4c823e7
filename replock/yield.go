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
	// undecided is the age up to which a flag in the state acquiring can be that of an acquirer that has
	// not decided yet, on a machine however busy; on a slow store, undecidedTrips round trips more. A
	// holder's is held after a second or two, or after half of its ttl if another program wrote it.
	undecided      = 40 * time.Second
	undecidedTrips = 20
)

// outlasts reports whether only acquirers that will withdraw because of us are in our way: exclusive ones
// in a shared acquirer's, and in that of the exclusive one that is first. They have their own pace, so what
// they have written decides, and not how long they take. waited is how long it has looked again.
func (l *Locker) outlasts(t *try, f findings, waited time.Duration) bool {
	most := undecided + undecidedTrips*t.trips.slowest()
	if f.more > 0 || waited >= most {
		return false
	}
	return !slices.ContainsFunc(f.live, func(e *entry) bool {
		age, ok := e.age(f.st, f.now)
		return e.err != nil || e.verdict != Live || e.lease.State != StateAcquiring || ok && age > most ||
			t.mode == Exclusive && (e.kind != kindIntent || t.yieldsTo(e))
	})
}

// yieldsTo reports whether an exclusive acquirer yields to another one: to that which has lock.exclusive, or
// if there is none, to the one whose flag came first. Of two, one yields.
func (t *try) yieldsTo(e *entry) bool {
	return e.kind == kindExclusive || e.kind == kindIntent && !t.exclusive.listed && place(e.Key) < place(t.flag.key)
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
// withdraw, and it is not for us to yield.
func (l *Locker) worthAnother(t *try, f findings) bool {
	return f.more == 0 && !slices.ContainsFunc(f.live, func(e *entry) bool {
		return e.verdict == Unreadable || t.yieldsTo(e) || !l.mayWithdraw(t, f, e)
	})
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
