package replock

import (
	"fmt"
	"sync/atomic"
	"time"
)

// trips are the quickest answers of the store to the requests of an acquire. A
// single slow one says nothing, so the quickest counts.
type trips struct{ put, list trip }

// trip is a duration, 0 as long as nothing is known.
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

// slowest is the longer of both.
func (t *trips) slowest() time.Duration { return max(t.put.get(), t.list.get()) }

// attempts is how many refreshes must fit between the first one and the deadline.
const attempts = 3

// holdable returns ErrSlow if the store answers so slowly that a refresh can't be
// tried three times before the deadline, and errLate if it only can't before the
// deadline of this attempt, which took too long: what is acquired must be holdable.
func (l *Locker) holdable(t *try) error {
	refresh := t.trips.put.get()
	if !l.conditions.matchKept {
		refresh += t.trips.list.get() // the look before the put
	}
	window := l.schedule.Deadline - l.schedule.Interval
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
