package clock

import "time"

// Reading is what both clocks of a machine show at one moment.
type Reading struct {
	// Wall is the wall clock, counted from the Unix epoch.
	Wall time.Duration
	// Elapsed as Clock.Elapsed has it.
	Elapsed time.Duration
}

// apartBy is how far the two clocks may move apart before Parted reports it: more
// than a leap second, and than it takes to read them.
const apartBy = 2 * time.Second

// maxSlew is how fast the kernel may slew the wall clock without a step, one in so
// many: 500 ppm by adjtimex(2), and as much again for what is off by itself.
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

// Parted reports whether the wall clock and Elapsed have moved apart since an
// earlier reading. Then the wall clock was set: perhaps because the machine didn't
// run for a time that Elapsed doesn't count, as when a hypervisor has paused it. A
// lease can't be trusted until it was looked at again.
func (r Reading) Parted(earlier Reading) bool {
	apart := (r.Wall - r.Elapsed) - (earlier.Wall - earlier.Elapsed)
	limit := apartBy + max(r.Elapsed-earlier.Elapsed, 0)/maxSlew
	return apart > limit || apart < -limit
}
