package sim

import (
	"sync"
	"time"

	"github.com/repolock/repolock/internal/nap"
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

// clientClock is a client's. Its timers don't run while the client is stopped, as those
// of a process don't; its Elapsed does.
type clientClock struct {
	*machine
	nap.Naps
	dice dice
}

// Now is the machine's wall clock.
func (c *clientClock) Now() time.Time { return c.wall() }

// Elapsed is the time since the machine was booted.
func (c *clientClock) Elapsed() time.Duration { return time.Since(c.booted) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// awake returns once the client runs: for everybody who waits at a time of their
// own, which the dice give.
func (c *clientClock) awake(d dice) {
	for {
		_, left := c.Slept(time.Now())
		if left == 0 {
			return
		}
		time.Sleep(left + nanoseconds(d.of(uint64(time.Now().UnixNano()))))
	}
}

// After fires once the client has run for so long, and at no time at which another
// timer of it fires.
func (c *clientClock) After(d time.Duration) <-chan time.Time {
	from := uint64(time.Now().UnixNano())
	d += nanoseconds(c.dice.of(from, uint64(d))) / 1000
	return c.Naps.After(d, func(left time.Duration) time.Duration {
		return nanoseconds(c.dice.of(from, uint64(d), uint64(left)))
	})
}
