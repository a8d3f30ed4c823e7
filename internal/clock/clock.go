// Package clock is the one place where time is read.
package clock

import (
	"context"
	"time"
)

// Clock reads the time in the two ways that a lease needs. Its methods can be called
// concurrently.
type Clock interface {
	// Now returns the wall clock, which can be wrong and can jump. Bodies contain it; it
	// never decides anything alone.
	Now() time.Time
	// Elapsed returns a clock that can't be set, that counts the time of a suspend, and
	// that all processes of one boot share. Its zero is arbitrary. Deadlines are readings
	// of it.
	Elapsed() time.Duration
	// After sends once d has passed, not counting suspends.
	After(d time.Duration) <-chan time.Time
}

// Tick is the interval at which a wait looks at Elapsed. Timers don't count the time of a
// suspend, so a wait notices a passed deadline within a Tick of waking.
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

// Now returns the machine's wall clock.
func (System) Now() time.Time { return Wall() }

// After is the runtime's timer.
func (System) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Elapsed returns the machine's clock that can't be set; each system's file names it.
func (System) Elapsed() time.Duration { return elapsed() }
