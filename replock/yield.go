package replock

import (
	"context"
	"slices"
	"time"
)

// Of an exclusive acquirer and others that come at the same time, the one that can win
// looks again a few times, while the others withdraw.
const (
	maxAgain   = 3
	firstAgain = 100 * time.Millisecond
	// transient is the age up to which a flag can be that of an acquirer that is
	// about to withdraw it; on a slow store, withdrawing round trips more.
	transient   = 3 * time.Second
	withdrawing = 6
	// patience is for how long a shared acquirer looks again; on a slow store, outlasting
	// round trips more. It is longer than an exclusive acquirer takes to give up: a
	// second, and some fourteen round trips.
	patience   = 2 * time.Second
	outlasting = 20
)

// yielding is how often, and since when, an attempt has looked again for those in its way.
type yielding struct {
	looks int
	since time.Duration
}

// again returns for how long to pause before the next look, or false if this acquirer
// must yield. It decides who waits, never who enters.
func (l *Locker) again(ctx context.Context, t *try, f found, y *yielding) (pause time.Duration, ok bool) {
	if y.looks == 0 {
		y.since = f.now
	}
	y.looks++
	if t.mode == Shared {
		return firstAgain << min(y.looks-1, 2), l.mayOutlast(t, f, y)
	}
	if y.looks > maxAgain || !l.worthAnother(t, f) {
		return 0, false
	}
	// Those in the way look, and take down what they have put: a pause of a round trip
	// before each of our looks leaves them six.
	pause = firstAgain<<(y.looks-1) + t.trips.slowest()
	shared := slices.ContainsFunc(f.live, func(e *entry) bool { return e.kind == kindShared })
	return pause, !shared || l.stepBack(ctx, t)
}

// mayOutlast reports whether those in a shared acquirer's way are exclusive acquirers that
// have just come: a live shared lock makes them withdraw soon.
func (l *Locker) mayOutlast(t *try, f found, y *yielding) bool {
	waited := f.now - y.since
	if f.more > 0 || waited >= patience+outlasting*t.trips.slowest() {
		return false
	}
	return !slices.ContainsFunc(f.live, func(e *entry) bool {
		age, ok := e.age(f.st, f.now)
		return e.err != nil || e.verdict != Live || e.lease.State != stateAcquiring || ok && age-waited > l.transience(t)
	})
}

// stepBack takes lock.exclusive down while shared locks are in the way, because it keeps
// other clients out as long as it stands. It reports whether one request has done that: after
// another one, which can still arrive, lock.exclusive can't be put again.
func (l *Locker) stepBack(ctx context.Context, t *try) bool {
	if !t.exclusive.maybe {
		return true
	}
	key := t.exclusive.key
	_, err := once(ctx, l.timeout()+2*t.trips.slowest(), "delete "+key, func(ctx context.Context) (nothing, error) {
		return nothing{}, l.ifOurs(ctx, t, func(etag string) error { return l.deleteSeen(ctx, key, etag) })
	})
	if err != nil || !t.exclusive.put {
		return false
	}
	t.exclusive = object{key: key, maybe: t.exclusive.twice, twice: t.exclusive.twice}
	return true
}

// worthAnother reports whether those in an exclusive acquirer's way can be about to
// withdraw, and it isn't for us to yield: to the one that has lock.exclusive, and if
// there is none, to the one that came first.
func (l *Locker) worthAnother(t *try, f found) bool {
	if f.more > 0 {
		return false
	}
	for _, e := range f.live {
		if e.verdict == Unreadable || e.kind == kindExclusive {
			return false
		}
		if e.kind == kindIntent && !t.exclusive.listed && e.Key < t.place {
			return false
		}
		if !l.mayWithdraw(t, f, e) {
			return false
		}
	}
	return true
}

// mayWithdraw reports whether an entry can be of an acquirer that hasn't looked yet.
func (l *Locker) mayWithdraw(t *try, f found, e *entry) bool {
	if e.err == nil && e.lease.State == stateHeld {
		return false
	}
	age, ok := e.age(f.st, f.now)
	return !ok || age <= l.transience(t)
}

// transience is how old a flag can be that is about to be withdrawn.
func (l *Locker) transience(t *try) time.Duration {
	return transient + withdrawing*t.trips.slowest()
}
