// Package clock reads the time for all other packages.
package clock

import (
	"context"
	"time"
)

// Clock is implemented by any replock.Clock or locking.Clock, which document the methods.
type Clock interface {
	Now() time.Time
	Elapsed() time.Duration
	After(d time.Duration) <-chan time.Time
}

// Tick is the interval at which a wait reads Elapsed if the system doesn't report suspends and steps: see Watch.
const Tick = 500 * time.Millisecond

// Sleep returns nil once d has passed on the clock's Elapsed. If the machine was suspended meanwhile,
// Sleep can be late by a Tick. It returns the context's error if the context ends first.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	_, err := SleepUntil(ctx, c, d, nil)
	return err
}

// SleepUntil is Sleep, but it also returns when it receives from wake, and reports whether it did.
func SleepUntil(ctx context.Context, c Clock, d time.Duration, wake <-chan struct{}) (woken bool, err error) {
	w := &Watch{clock: c}
	if d > Tick {
		w = NewWatch(c)
		defer w.Stop()
	}
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
		case <-w.After(left):
		}
	}
}

// System is the machine's clock. In a testing/synctest bubble it is the bubble's clock, so that a
// program that uses our default clock can test its own code in a bubble.
type System struct{}

// Wall reads the machine's wall clock. It is a variable so that a test can step the clock of a
// program that it runs.
var Wall = time.Now

// Now reads the wall clock.
func (System) Now() time.Time { return Wall() }

// After is time.After.
func (System) After(d time.Duration) <-chan time.Time { return time.After(d) }
