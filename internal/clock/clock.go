// Package clock is the one place where time is read.
package clock

import (
	"context"
	"time"
)

// Clock is replock.Clock and locking.Clock, which document the methods.
type Clock interface {
	Now() time.Time
	Elapsed() time.Duration
	After(d time.Duration) <-chan time.Time
}

// Tick is the interval at which a wait looks at Elapsed. Timers don't count the time of a
// suspend, so a wait notices a passed deadline within a Tick of waking.
const Tick = 500 * time.Millisecond

// Sleep returns nil once d has passed on the clock's Elapsed, within a Tick of waking if the
// machine was suspended meanwhile. It returns the context's error if that ended first.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	_, err := SleepUntil(ctx, c, d, nil)
	return err
}

// SleepUntil is Sleep that also ends when it receives from wake, and reports whether it did.
func SleepUntil(ctx context.Context, c Clock, d time.Duration, wake <-chan struct{}) (woken bool, err error) {
	for at := c.Elapsed() + d; ; {
		left := at - c.Elapsed()
		if left <= 0 {
			return false, ctx.Err()
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-wake:
			return true, nil
		case <-c.After(min(left, Tick)):
		}
	}
}

// System is the machine's own clock. In a testing/synctest bubble it is the bubble's, so that a
// program which leaves the clock to us can test its own code in one.
type System struct{}

// Wall reads the machine's wall clock. It is a variable so that tests can step it in
// a program that they run.
var Wall = time.Now

func (System) Now() time.Time { return Wall() }

func (System) After(d time.Duration) <-chan time.Time { return time.After(d) }
