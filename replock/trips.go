package replock

import (
	"fmt"
	"sync/atomic"
	"time"
)

// trips are the quickest answers of the store to the requests of an acquire. A single slow one
// says nothing.
type trips struct{ put, list trip }

// trip is a duration, or 0 if none is known.
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

// slowest returns the longer of both.
func (t *trips) slowest() time.Duration { return max(t.put.get(), t.list.get()) }

// attempts is how many refreshes must fit between the first one and the deadline.
const attempts = 3

// holdable returns ErrSlow if the store is so slow that a refresh cannot be tried three times
// before the deadline, and errLate if only this try took too long for that: a lock must be
// holdable when it is acquired.
func (l *Locker) holdable(t *try) error {
	refresh := t.trips.put.get()
	if !l.conditions.matchKept {
		refresh += t.trips.list.get() // the look before the put
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
	return fmt.Errorf("%w: a refresh takes %v here, and of a lock with a ttl of %v it must fit %d times into %v; a ttl of %v would do",
		ErrSlow, refresh.Round(time.Millisecond), l.opts.TTL, attempts, window.Round(time.Millisecond), longer)
}
