// Package leapclock is a clock for tests in testing/synctest bubbles.
package leapclock

import (
	"sync/atomic"
	"time"
)

// Clock runs with a bubble's time. Leap is the total time of suspends: it counts in Elapsed and Now, but not
// for timers. Step is by how much the wall clock was set.
type Clock struct {
	start      time.Time
	Leap, Step atomic.Int64
}

// New returns a clock whose Elapsed is 0.
func New() *Clock { return &Clock{start: time.Now()} }

// Now is the wall clock.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.Leap.Load() + c.Step.Load())) }

// Elapsed is the time since New.
func (c *Clock) Elapsed() time.Duration { return time.Since(c.start) + time.Duration(c.Leap.Load()) }

// After is time.After.
func (c *Clock) After(d time.Duration) <-chan time.Time { return time.After(d) }
