package refresh

import "time"

// Schedule has every duration that is derived from the ttl of a lease. Interval and Deadline count
// from when the last renewal that was answered in time was sent.
type Schedule struct {
	// Interval is the time until the next renewal, which can come a tenth earlier
	// (Refresher.Jitter).
	Interval time.Duration
	// Deadline is the time after which the lease must not be relied on. The rest of the ttl is a
	// guard time, in which the holder stops.
	Deadline time.Duration
	// Failures is the number of failures after which the refresher gives up. A failure is a period
	// of length Failure in which the renewal was attempted repeatedly and never answered. So the
	// last failure ends at the deadline.
	Failures int
	Failure  time.Duration
	// Budget bounds all sends of one request of an acquire or a release, and Timeout bounds one
	// send.
	Budget, Timeout time.Duration
}

// Bounds of Budget and Timeout for a long ttl. A person must learn within 15 s that a store can't
// be reached. And after a send that hangs there must be time for another one.
const (
	maxBudget  = 11 * time.Second
	maxTimeout = 8 * time.Second
)

// ForTTL returns the schedule of a lease of the given length.
func ForTTL(ttl time.Duration) Schedule {
	const failures = 3
	s := Schedule{
		// Other clients of the wire format use the same: 30 s of 60 s.
		Interval: ttl / 2,
		// The last twelfth is for the holder to stop: 5 s of 60 s.
		Deadline: ttl * 55 / 60,
		// The failures share the time in between: of 60 s, each lasts 8.3 s. (In the original
		// protocol they are 30 s apart, and its holder runs on for half a minute after the end of
		// the lease.)
		Failures: failures,
		// An acquire must end well before the lease that it begins.
		Budget:  min(maxBudget, ttl/4),
		Timeout: min(maxTimeout, ttl*2/15),
	}
	return s.Every(s.Interval)
}

// Every returns the schedule with another Interval. The failures share the remaining time.
func (s Schedule) Every(interval time.Duration) Schedule {
	s.Interval = interval
	s.Failure = (s.Deadline - s.Interval) / time.Duration(s.Failures)
	return s
}

// Pauses between two attempts of a renewal. They double, and become shorter again towards the
// deadline, so that a store that recovers a few seconds before the deadline still gets an attempt.
const (
	firstPause    = 250 * time.Millisecond
	shortestPause = 200 * time.Millisecond
	longestPause  = 10 * time.Second
)

// pause is the pause after the n-th failed attempt in a row. left is the time until the deadline.
func pause(n int, left time.Duration) time.Duration {
	doubled := min(firstPause<<min(n-1, 6), longestPause)
	return max(min(doubled, left/5), shortestPause)
}
