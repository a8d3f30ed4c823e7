package clock

import "time"

// Reading is a reading of both clocks of a machine at one moment: the wall clock, counted from the
// Unix epoch, and Clock.Elapsed.
type Reading struct{ Wall, Elapsed time.Duration }

// minStep is the smallest step of the wall clock that SteppedSince notices: more than a leap second, and
// more than the time between the readings of the two clocks.
const minStep = 2 * time.Second

// The system slews a wall clock by up to 500 ppm, adjtimex(2), and its hardware is wrong by less than
// that. So without a step the two clocks diverge by at most one part in maxSlew.
const maxSlew = 1000

// Read reads both clocks.
func Read(c Clock) Reading {
	for {
		before := c.Elapsed()
		wall := time.Duration(c.Now().UnixNano())
		// A process can be stopped between the two readings, for hours.
		if after := c.Elapsed(); after-before < minStep/10 {
			return Reading{wall, after}
		}
	}
}

// SteppedSince reports whether the wall clock was stepped since an earlier reading. A step can follow a
// hypervisor's pause of the machine, which Elapsed doesn't count. So the holder of a lease must not trust
// the lease until it has looked at the lock again.
func (r Reading) SteppedSince(earlier Reading) bool {
	step := (r.Wall - r.Elapsed) - (earlier.Wall - earlier.Elapsed)
	limit := minStep + max(r.Elapsed-earlier.Elapsed, 0)/maxSlew
	return step > limit || step < -limit
}

// century bounds Between.
const century = 100 * 365 * 24 * time.Hour

// Between returns the time from one time to another one, or a century if it is longer. So a sum of it and a ttl doesn't
// overflow, whatever times another program has written.
func Between(from, to time.Time) time.Duration {
	return min(max(to.Sub(from), -century), century)
}
