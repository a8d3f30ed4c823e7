package replock

import (
	"context"
	"slices"
	"time"
)

// If an exclusive acquirer and others come at the same time, the acquirer that can win looks again
// a few times, and the others withdraw.
const (
	// transient is the age up to which a flag can belong to an acquirer that is about to withdraw
	// it. On a slow store it is withdrawTrips round trips more.
	transient     = 3 * time.Second
	withdrawTrips = 6
	// undecided is the age up to which a flag in the state acquiring can belong to an acquirer that
	// has not decided yet, however busy its machine is. On a slow store it is undecidedTrips round
	// trips more. A holder's flag has the state held after a second or two, or after half of its
	// ttl if another program wrote it.
	undecided      = 40 * time.Second
	undecidedTrips = 20
)

// outlasts reports whether all conflicting locks belong to acquirers that will withdraw because of
// us. For a shared acquirer these are exclusive acquirers; for the exclusive one that is first,
// later exclusive ones. Their bodies decide that, and not how long they take, because each has its
// own pace. waited is how long this try has looked again.
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

// yieldsTo reports whether an exclusive acquirer yields to another one: to the acquirer that has
// lock.exclusive, or, if none has, to the one whose flag came first. So of any two, one yields.
func (t *try) yieldsTo(e *entry) bool {
	return e.kind == kindExclusive || e.kind == kindIntent && !t.exclusive.listed && place(e.Key) < place(t.flag.key)
}

// stepBack deletes lock.exclusive while shared locks conflict, because it excludes other clients as
// long as it is stored. It reports whether a single request has deleted it. If a second one was
// needed, the first can still be applied, so lock.exclusive can't be put again.
func (l *Locker) stepBack(ctx context.Context, t *try) bool {
	if !t.exclusive.maybe {
		return true
	}
	key := t.exclusive.key
	_, err := once(ctx, "delete "+key, func(ctx context.Context) (nothing, error) {
		return nothing{}, l.ifOurs(ctx, t, func(etag string) error { return l.deleteSeen(ctx, key, etag) })
	})(l.times.Timeout + 2*t.trips.slowest())
	if err != nil || !t.exclusive.put {
		return false
	}
	t.exclusive = object{key: key, maybe: t.exclusive.twice, twice: t.exclusive.twice}
	return true
}

// worthAnother reports whether all conflicting locks can be about to withdraw, and this exclusive
// acquirer yields to none of them.
func (l *Locker) worthAnother(t *try, f findings) bool {
	return f.more == 0 && !slices.ContainsFunc(f.live, func(e *entry) bool {
		return e.verdict == Unreadable || t.yieldsTo(e) || !l.mayWithdraw(t, f, e)
	})
}

// mayWithdraw reports whether an entry can belong to an acquirer that has not looked yet.
func (l *Locker) mayWithdraw(t *try, f findings, e *entry) bool {
	if e.err == nil && e.lease.State == StateHeld || e.isTicket() {
		return false
	}
	age, ok := e.age(f.st, f.now)
	return !ok || age <= l.transience(t)
}

// transience is the greatest age of a flag that can be about to be withdrawn.
func (l *Locker) transience(t *try) time.Duration {
	return transient + withdrawTrips*t.trips.slowest()
}
