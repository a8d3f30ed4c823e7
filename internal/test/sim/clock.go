package sim

import (
	"path"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/test/stoppedclock"
)

// machine is what the clients that run on it share.
type machine struct {
	host    string
	mu      sync.Mutex
	boots   int
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
	dice  dice
	shift time.Duration // of its time namespace
}

// Now is the machine's wall clock.
func (c *clientClock) Now() time.Time { return c.wall() }

// Elapsed is the time since the machine was booted, as the client's time namespace has it.
func (c *clientClock) Elapsed() time.Duration { return c.uptime() + c.shift }

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

// After fires once the client has run for so long, and at no time at which a timer of it fires
// that another package has set.
func (c *clientClock) After(d time.Duration) <-chan time.Time {
	dice := c.dice.of(uint64(time.Now().UnixNano()), waiter(), uint64(d))
	d += nanoseconds(dice) / 1000
	return c.Stops.After(d, func(left time.Duration) time.Duration { return nanoseconds(dice.of(uint64(left))) })
}

// waiter is a hash of the name of the package that waits. The refresher and the watch of a lock
// begin to wait at one time, and for as long, and must not go on at one time. The order in which
// they come depends on the scheduler, so only the caller distinguishes them. Its function would
// do, but then a new name would change all histories. Two waiters of one package can go on at one
// time: each sends another request next, and send sets these apart.
func waiter() uint64 {
	var callers [8]uintptr
	n := runtime.Callers(3, callers[:])
	if known, ok := callersOf.Load(callers); ok {
		return known.(uint64)
	}
	frames := runtime.CallersFrames(callers[:n])
	for {
		frame, more := frames.Next()
		if pkg := packageOf(frame.Function); pkg != "clock" || !more {
			hash := uint64(dice(0).named(pkg))
			callersOf.Store(callers, hash)
			return hash
		}
	}
}

// callersOf has the hashes of the callers that have been looked up.
var callersOf sync.Map

// packageOf returns the last element of the import path of a function's package.
func packageOf(function string) string {
	pkg, _, _ := strings.Cut(path.Base(function), ".")
	return pkg
}
