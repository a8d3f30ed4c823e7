package refresh

import "time"

// Schedule says when a lease is renewed. All times are counted from when the
// last renewal that was answered in time was sent.
type Schedule struct {
	// Interval until the next renewal.
	Interval time.Duration
	// Retry is the time from the start of an attempt that failed to the start
	// of the next one.
	Retry time.Duration
	// Timeout of one attempt.
	Timeout time.Duration
	// Failures in a row after which the refresher gives up.
	Failures int
	// Deadline from which on the lease must not be relied on. It is before the
	// lease's end by a guard, in which whoever relied on it comes to a stop.
	Deadline time.Duration
}

// ForTTL is the schedule of a lease of the given length: renewed at half of it,
// as the wire format's other clients do (30 s of 60), then at 38 s and 46 s of
// 60; the third failure ends by 54 s of 60 and so before the deadline at 55 s.
// (Three failures 30 s apart, as in the original, take 90 s: the holder would
// run on for half a minute after the lease's end.)
func ForTTL(ttl time.Duration) Schedule {
	return Schedule{
		Interval: ttl / 2,
		Retry:    ttl * 8 / 60,
		Timeout:  min(ttl*8/60, maxTimeout),
		Failures: 3,
		Deadline: ttl * 55 / 60,
	}
}

// maxTimeout bounds an attempt of a long lease: a connection that hangs for
// this long answers no more.
const maxTimeout = 30 * time.Second
