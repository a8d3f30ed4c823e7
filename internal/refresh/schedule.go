package refresh

import "time"

// Schedule has every duration that derives from the ttl of a lease. Interval and Deadline count
// from the moment at which the last renewal was sent that was answered in time.
type Schedule struct {
	// Interval is the time until the next renewal, which can come a tenth earlier
	// (Refresher.Early).
	Interval time.Duration
	// Deadline is the time after which the lease must not be relied on. It is before the
	// end of the lease by a guard time, in which the holder comes to a stop.
	Deadline time.Duration
	// Failures is the number of failures after which the refresher gives up. A failure is a
	// time of Failure in which the renewal was tried again and again and never answered, so
	// that the last one ends at the deadline.
	Failures int
	Failure  time.Duration
	// Budget bounds all sends of one request of an acquire or a release, Timeout one send.
	Budget, Timeout time.Duration
}

// Bounds of Budget and Timeout for a long ttl: a person must learn within 15 s that a store
// cannot be reached, and after a send that hangs there must be time for another.
const (
	maxBudget  = 11 * time.Second
	maxTimeout = 8 * time.Second
)

// ForTTL returns the schedule of a lease of the given length.
func ForTTL(ttl time.Duration) Schedule {
	const failures = 3
	s := Schedule{
		// As the other clients of the wire format do: 30 s of 60.
		Interval: ttl / 2,
		// The twelfth that is left is for the holder to stop: 5 s of 60.
		Deadline: ttl * 55 / 60,
		// The failures share the time in between: of 60 s, each lasts 8.3 s. (The original's
		// are 30 s apart: its holder runs on for half a minute after the end of the lease.)
		Failures: failures,
		// An acquire has to be over well before the lease that it begins.
		Budget:  min(maxBudget, ttl/4),
		Timeout: min(maxTimeout, ttl*2/15),
	}
	return s.Every(s.Interval)
}

// Every returns the schedule with another Interval. The failures share the time that is left.
func (s Schedule) Every(interval time.Duration) Schedule {
	s.Interval = interval
	s.Failure = (s.Deadline - s.Interval) / time.Duration(s.Failures)
	return s
}

// Pauses between two tries of a renewal. They double, and shorten again towards the deadline, so
// that a store which comes back a few seconds before it still gets a try.
const (
	firstPause    = 250 * time.Millisecond
	shortestPause = 200 * time.Millisecond
	longestPause  = 10 * time.Second
)

// pause is the time after the n-th try in a row that failed, left before the deadline.
func pause(n int, left time.Duration) time.Duration {
	doubled := min(firstPause<<min(n-1, 6), longestPause)
	return max(min(doubled, left/5), shortestPause)
}
