package clock

import "time"

// Reading is what both clocks of a machine show at one moment: the wall clock, counted from the Unix epoch,
// and Clock.Elapsed.
type Reading struct{ Wall, Elapsed time.Duration }

// apartBy is the difference between the two clocks above which Parted reports true: more
// than a leap second, and than it takes to read them.
const apartBy = 2 * time.Second

// maxSlew bounds the slewing of the wall clock without a step, one in maxSlew: 500 ppm by
// adjtimex(2), and as much again for the clock's own error.
const maxSlew = 1000

// Read reads both clocks.
func Read(c Clock) Reading {
	for {
		before := c.Elapsed()
		wall := time.Duration(c.Now().UnixNano())
		// A process can be stopped between the two, for hours.
		if after := c.Elapsed(); after-before < apartBy/10 {
			return Reading{wall, after}
		}
	}
}

// Parted reports whether the wall clock and Elapsed have moved apart since an earlier reading.
// Then the wall clock was set, perhaps after a hypervisor's pause, which Elapsed doesn't count. A
// lease can't be trusted until it is looked at again.
func (r Reading) Parted(earlier Reading) bool {
	apart := (r.Wall - r.Elapsed) - (earlier.Wall - earlier.Elapsed)
	limit := apartBy + max(r.Elapsed-earlier.Elapsed, 0)/maxSlew
	return apart > limit || apart < -limit
}
