package guard

import (
	"errors"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// Expiry is the guard's action when the allowance ends.
type Expiry uint8

const (
	Stop    Expiry = iota // the guard stops the group until the next Allow
	Kill                  // the guard kills the group; but because of ErrClockStepped it only stops it
	Nothing               // the group runs on; the guard still kills it when our process has ended
)

// MostContinued is how often another process can continue a stopped group before we kill it. A person can do that by
// mistake, and a debugger that ends does it once. A program that does it again and again (cpulimit) doesn't cease,
// and each time the group runs for a moment.
const MostContinued = 3

// Allowance is the time until which a group may run, and a reading of both clocks. Neither clock counts a
// pause of the machine by its hypervisor. Only a step of the wall clock after the pause shows it. After a
// step, Until doesn't count until the lock is looked at again.
type Allowance struct {
	// Until is a time on clock.System{}.Elapsed.
	Until time.Duration
	// Seen is a reading of the clocks from before the last request that showed the lock.
	Seen clock.Reading
}

var (
	// ErrExpired is returned when the group may not run because its allowance is over.
	ErrExpired = errors.New("the lease was over before the command could run")
	// ErrClockStepped is returned when the group may not run until the lock is looked at: the wall clock was
	// stepped, so the machine might have been paused.
	ErrClockStepped = errors.New("the wall clock was stepped, or the machine was paused")
)

// Allow returns an allowance until a time on clock.System{}.Elapsed, for a lock that is seen now.
func Allow(until time.Duration) Allowance { return Allowance{until, ReadClocks()} }

// Check returns nil if the allowance holds, else ErrExpired or ErrClockStepped. Both procgroup and the guard call
// it, so that neither continues a group that the other stops.
func (a Allowance) Check(e Expiry, now clock.Reading) error {
	switch {
	case e == Nothing:
		return nil
	case now.Elapsed >= a.Until:
		return ErrExpired
	case now.SteppedSince(a.Seen):
		return ErrClockStepped
	}
	return nil
}

// ReadClocks reads both clocks. It is a variable for tests.
var ReadClocks = func() clock.Reading { return clock.Read(clock.System{}) }
