package beads

import (
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// Leap is a clock whose waits of 50 ms and more end when Until has returned: so what a test lets
// happen in that time is in time, however slow the machine is.
type Leap struct {
	clock.System
	Until func()
	leapt atomic.Int64
}

func (c *Leap) Elapsed() time.Duration { return c.System.Elapsed() + time.Duration(c.leapt.Load()) }

func (c *Leap) After(d time.Duration) <-chan time.Time {
	if d < 50*time.Millisecond {
		return c.System.After(d)
	}
	if c.Until != nil {
		c.Until()
	}
	c.leapt.Add(int64(d))
	ready := make(chan time.Time, 1)
	ready <- c.Now()
	return ready
}

// bubble is the clock of a synctest bubble.
type bubble struct{ began time.Time }

func (bubble) Now() time.Time                         { return time.Now() }
func (c bubble) Elapsed() time.Duration               { return time.Since(c.began) }
func (bubble) After(d time.Duration) <-chan time.Time { return time.After(d) }

// NewBubble returns the clock of the bubble of its caller.
func NewBubble() clock.Clock { return bubble{time.Now()} }
