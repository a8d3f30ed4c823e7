package sim

import (
	"sync"
	"time"
)

// machine is what the clients that run on it share.
type machine struct {
	boot    string
	mu      sync.Mutex
	booted  time.Time
	skew    time.Duration // of the wall clock
	clients []*client
}

func (m *machine) jump(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skew += d
}

func (m *machine) wall() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(m.skew)
}

// nap is a time in which a client doesn't run.
type nap struct{ from, to time.Time }

// clientClock is a client's. Its timers don't run while the client is stopped, as those
// of a process don't; its Elapsed does.
type clientClock struct {
	*machine
	dice dice
	mu   sync.Mutex
	naps []nap
}

// Now is the machine's wall clock.
func (c *clientClock) Now() time.Time { return c.wall() }

// Elapsed is the time since the machine was booted.
func (c *clientClock) Elapsed() time.Duration { return time.Since(c.booted) }

// stop the client for a while.
func (c *clientClock) stop(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	n := nap{now, now.Add(d)}
	if last := len(c.naps) - 1; last >= 0 && c.naps[last].to.After(now) { // is stopped already
		c.naps[last].to = later(c.naps[last].to, n.to)
		return
	}
	c.naps = append(c.naps, n)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// slept is for how long the client was stopped since then, and left for how much
// longer it will be.
func (c *clientClock) slept(since time.Time) (slept, left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, n := range c.naps {
		from, to := n.from, n.to
		if from.Before(since) {
			from = since
		}
		if to.After(now) {
			left = max(left, to.Sub(now))
			to = now
		}
		if to.After(from) {
			slept += to.Sub(from)
		}
	}
	return slept, left
}

// woke reports whether the client runs, and has for so long.
func (c *clientClock) woke(ago time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, n := range c.naps {
		if n.to.Add(ago).After(now) {
			return false
		}
	}
	return true
}

// awake returns once the client runs: for everybody who waits at a time of their
// own, which the dice give.
func (c *clientClock) awake(d dice) {
	for {
		_, left := c.slept(time.Now())
		if left == 0 {
			return
		}
		time.Sleep(left + nanoseconds(d.of(uint64(time.Now().UnixNano()))))
	}
}

// After fires once the client has run for so long.
func (c *clientClock) After(d time.Duration) <-chan time.Time {
	fired := make(chan time.Time, 1)
	from := time.Now()
	d += nanoseconds(c.dice.of(uint64(from.UnixNano()), uint64(d))) / 1000
	var fire func()
	fire = func() {
		slept, left := c.slept(from)
		switch due := time.Until(from.Add(d + slept)); {
		case left > 0:
			time.AfterFunc(left+nanoseconds(c.dice.of(uint64(from.UnixNano()), uint64(d), uint64(left))), fire)
		case due > 0:
			time.AfterFunc(due, fire)
		default:
			fired <- time.Now()
		}
	}
	time.AfterFunc(d, fire)
	return fired
}
