package child

import (
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// Allowance is until when a group may run, and what the clocks showed when the lock
// was last seen. A machine that its hypervisor pauses loses that time on both clocks,
// and a later step of the wall clock is the first that it notices: from then on Until
// means nothing, until the lock was looked at again.
type Allowance struct {
	// Until is an absolute reading of clock.System{}.Elapsed.
	Until time.Duration
	// Seen is when the last look at the lock was sent that was answered.
	Seen clock.Reading
}

// Allow is an allowance for a lock that is seen at this moment.
func Allow(until time.Duration) Allowance { return Allowance{until, ReadClocks()} }

// judge returns nil if the allowance holds, else ErrExpired or ErrParted. Both sides
// go by it, so that neither continues what the other stops.
func (a Allowance) judge(e Expiry, now clock.Reading) error {
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
