package guard

import (
	"errors"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// Expiry is what happens to the group when its allowance ends.
type Expiry uint8

const (
	Stop    Expiry = iota // the guard stops it, and continues it after the next Allow
	Kill                  // the guard kills it, but only stops it because of ErrParted
	Nothing               // it runs on; the guard still kills it when our process is gone
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

var (
	// ErrExpired is returned when the group may not run because its allowance is over.
	ErrExpired = errors.New("the time until which the command may run is over")
	// ErrParted is returned when the group may not run until the lock is looked at: the
	// wall clock and the clock since boot have parted, so the machine might have been
	// paused without either clock noticing.
	ErrParted = errors.New("the wall clock was stepped, or the machine was paused")
)

// Allow returns an allowance for a lock that is seen now.
func Allow(until time.Duration) Allowance { return Allowance{until, ReadClocks()} }

// Check returns nil if the allowance holds, else ErrExpired or ErrParted. procgroup and
// the guard both use it, so that neither continues what the other stops.
func (a Allowance) Check(e Expiry, now clock.Reading) error {
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
