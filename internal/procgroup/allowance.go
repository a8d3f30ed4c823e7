package procgroup

import (
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// Allowance is the time until which a group may run, and a reading of the clocks from
// when the lock was last seen. A machine that its hypervisor pauses loses that time on
// both clocks, and notices only a later step of the wall clock. After such a step Until
// means nothing until the lock is looked at again.
type Allowance struct {
	// Until is an absolute reading of clock.System{}.Elapsed.
	Until time.Duration
	// Seen is the time at which the last answered look at the lock was sent.
	Seen clock.Reading
}

// Allow returns an allowance for a lock that is seen now.
func Allow(until time.Duration) Allowance { return Allowance{until, ReadClocks()} }

// check returns nil if the allowance holds, else ErrExpired or ErrParted. We and the guard
// both use it, so that neither continues what the other stops.
func (a Allowance) check(e Expiry, now clock.Reading) error {
	switch {
	case e == Nothing:
		return nil
	case now.Elapsed >= a.Until:
		return ErrExpired
	case now.Parted(a.Seen):
		return ErrParted
	}
	return nil
}

// ReadClocks reads both clocks. It is a variable for tests.
var ReadClocks = func() clock.Reading { return clock.Read(clock.System{}) }
