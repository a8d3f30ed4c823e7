package refresh

import "time"

// Schedule says when a lease is renewed. Interval and Deadline count from the
// moment at which the last renewal was sent that was answered in time.
type Schedule struct {
	// Interval until the next renewal, which may come a tenth earlier (Refresher.Early).
	Interval time.Duration
	// Deadline from which on the lease must not be relied on. It is before the
	// lease's end by a guard time, in which the holder comes to a stop.
	Deadline time.Duration
	// Failures after which the refresher gives up. A failure is a time of
	// Failure in which the renewal was tried again and again and never
	// answered, so the last one ends at the deadline.
	Failures int
	Failure  time.Duration
}

// ForTTL is the schedule of a lease of the given length: renewed at half of it,
// as the other clients of the wire format do (30 s of 60), and given up at
// 55/60 of it. The three failures share the time in between: of 60 s, each
// lasts 8.3 s. (Three failures 30 s apart, as in the original, take 90 s: the
// holder would run on for half a minute after the lease's end.)
func ForTTL(ttl time.Duration) Schedule {
	const failures = 3
	s := Schedule{Interval: ttl / 2, Deadline: ttl * 55 / 60, Failures: failures}
	s.Failure = (s.Deadline - s.Interval) / failures
	return s
}

// Pauses between two tries of a renewal. They double from the first to the
// longest, and shorten again towards the deadline, so that a store which comes
// back a few seconds before the deadline still gets a try.
const (
	firstPause    = 250 * time.Millisecond
	shortestPause = 200 * time.Millisecond
	longestPause  = 10 * time.Second
)

// pause is the time between a try that failed, the n-th in a row, and the next
// one, left before the deadline.
func pause(n int, left time.Duration) time.Duration {
	doubled := longestPause
	if n < 7 {
		doubled = min(firstPause<<(n-1), longestPause)
	}
	return max(min(doubled, left/5), shortestPause)
}
