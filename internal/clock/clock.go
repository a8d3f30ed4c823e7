// Package clock is the one place where time is read.
package clock

import (
	"context"
	"time"
)

// Clock tells the time in the two ways that a lease needs. It may be used
// concurrently.
type Clock interface {
	// Now is the wall clock. It can be wrong and can jump; it is stamped into
	// bodies and never decides anything alone.
	Now() time.Time
	// Elapsed is a clock that nobody can set, that counts the time that the
	// machine was suspended, and that all processes of one boot share. Its zero
	// is arbitrary. Deadlines are read on it.
	Elapsed() time.Duration
	// After sends once d has passed, not counting suspends.
	After(d time.Duration) <-chan time.Time
}

// Tick is how often a wait looks at Elapsed again: timers don't count the time
// that a machine is suspended, so this is how soon after waking a passed
// deadline is noticed.
const Tick = 500 * time.Millisecond

// SleepUntil returns nil once the clock's Elapsed has reached at, within half a
// second of waking if the machine was suspended meanwhile, or the context's
// error if that ended first.
func SleepUntil(ctx context.Context, c Clock, at time.Duration) error {
	for {
		left := at - c.Elapsed()
		if left <= 0 {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.After(min(left, Tick)):
		}
	}
}

// Sleep is SleepUntil for a duration from now.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	return SleepUntil(ctx, c, c.Elapsed()+d)
}

// System is the machine's own clock.
type System struct{}

// Wall reads the machine's wall clock. It is a variable so that tests can step it in
// a program that they run.
var Wall = time.Now

// Now is the machine's wall clock.
func (System) Now() time.Time { return Wall() }

// After is the runtime's timer.
func (System) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Elapsed is the machine's clock that nobody can set; see the system's own file
// for which one it is.
func (System) Elapsed() time.Duration { return elapsed() }
