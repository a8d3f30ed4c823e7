package sim

import (
	"runtime"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/test/stoppedclock"
)

// machine is what the clients that run on it share.
type machine struct {
	boot    string
	mu      sync.Mutex
	booted  time.Time
	skew    time.Duration // of the wall clock
	clients []*client
	frozen  stoppedclock.Stops // in which none of its clocks ran: see freeze
	lag     freezing
}

func (m *machine) jump(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skew += d
}

func (m *machine) wall() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	missed, _ := m.frozen.Stopped(m.booted)
	return time.Now().Add(m.skew - missed + m.lag.stepped)
}

// clientClock is a client's. Its timers don't run while the client is stopped, as those
// of a process don't; its Elapsed does.
type clientClock struct {
	*machine
	stoppedclock.Stops
	dice dice
}

// Now is the machine's wall clock.
func (c *clientClock) Now() time.Time { return c.wall() }

// Elapsed is the time since the machine was booted.
func (c *clientClock) Elapsed() time.Duration {
	missed, _ := c.frozen.Stopped(c.booted)
	return time.Since(c.booted) - missed
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// awake returns once the client runs. Each caller goes on at a time of its own, which the
// dice give.
func (c *clientClock) awake(d dice) {
	for {
		_, left := c.Stopped(time.Now())
		if left == 0 {
			return
		}
		time.Sleep(left + nanoseconds(d.of(uint64(time.Now().UnixNano()))))
	}
}

// After fires once the client has run for so long, and at no time at which another
// timer of it fires.
func (c *clientClock) After(d time.Duration) <-chan time.Time {
	dice := c.dice.of(uint64(time.Now().UnixNano()), waiter(), uint64(d))
	d += nanoseconds(dice) / 1000
	return c.Stops.After(d, func(left time.Duration) time.Duration { return nanoseconds(dice.of(uint64(left))) })
}

// waiter is a hash of the functions that wait. Two parts of the engine can begin to wait at
// one time, and for as long, and must not go on at one time.
func waiter() uint64 {
	var callers [6]uintptr
	n := runtime.Callers(3, callers[:])
	h := dice(0)
	for _, pc := range callers[:n] {
		name, ok := functions.Load(pc)
		if !ok {
			name = uint64(dice(0).named(runtime.FuncForPC(pc - 1).Name()))
			functions.Store(pc, name)
		}
		h = h.of(name.(uint64))
	}
	return uint64(h)
}

var functions sync.Map // hashes of their names, by program counter
