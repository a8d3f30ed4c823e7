package replock

import (
	"fmt"
	"sync/atomic"
	"time"
)

// trips are the durations of the fastest requests of an acquire. A single slow request shows
// nothing.
type trips struct{ put, list trip }

// trip is a duration, or 0 if it is unknown.
type trip struct{ quickest atomic.Int64 }

func (t *trip) note(d time.Duration) {
	for {
		was := t.quickest.Load()
		if was != 0 && was <= int64(d) || t.quickest.CompareAndSwap(was, int64(max(d, 1))) {
			return
		}
	}
}

func (t *trip) get() time.Duration { return time.Duration(t.quickest.Load()) }

// slowest returns the longer of the two.
func (t *trips) slowest() time.Duration { return max(t.put.get(), t.list.get()) }

// attempts is the number of refreshes that must fit between the first one and the deadline.
const attempts = 3

// holdable returns ErrSlow if the store is so slow that three refreshes don't fit before the
// deadline. It returns errLate if only this try took too long for that. A lock that is acquired
// must be holdable.
func (l *Locker) holdable(t *try) error {
	refresh := t.trips.put.get()
	if !l.conditions.matchKept {
		refresh += t.trips.list.get() // a look precedes the put
	}
	window := l.times.Deadline - l.times.Interval
	if attempts*refresh <= window {
		if l.opts.Clock.Elapsed()+attempts*refresh >= t.deadline {
			return errLate
		}
		return nil
	}
	longer := time.Duration(float64(l.opts.TTL) * float64(attempts*refresh) / float64(window))
	longer = longer.Truncate(time.Second) + time.Second
	return fmt.Errorf("%w: a refresh takes %v, and with a ttl of %v, %d of them must fit into %v; use a ttl of %v",
		ErrSlow, refresh.Round(time.Millisecond), l.opts.TTL, attempts, window.Round(time.Millisecond), longer)
}
