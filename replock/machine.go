package replock

import "time"

// Clock is the time as a lease needs it, on two clocks. It can be used concurrently. It must
// advance together with the runtime's timers, as the system's own clocks do, and as time in a
// testing/synctest bubble does.
type Clock interface {
	// Now returns the time of the wall clock. That clock can be wrong and can jump. Its time is
	// written into bodies, and never decides anything alone.
	Now() time.Time
	// Elapsed returns the time on a clock that can't be set, that counts suspends of the machine,
	// and that all processes of one boot share. Its zero is arbitrary. Deadlines are times on this
	// clock.
	Elapsed() time.Duration
	// After returns a channel that receives once d has passed. It doesn't count suspends.
	After(d time.Duration) <-chan time.Time
}

// Process identifies a process, so that a process on another machine, after a reboot, or in another
// container can compare it. A field is empty or zero if the system doesn't have it.
type Process struct {
	Hostname string
	// HostID is a hash of the machine's id.
	HostID string
	// BootID is new with each boot of the machine, and the same in all its containers.
	BootID string
	PID    int
	// PIDNamespace identifies the pid namespace: in another one PID is another process.
	PIDNamespace string
	// TimeNamespace identifies the clock of PIDStart and Clock.Elapsed. It is "none" on a kernel
	// without time namespaces.
	TimeNamespace string
	// PIDStart is the start time of the process in the system's own unit. It distinguishes
	// the process from a later one with the same PID.
	PIDStart uint64
	User     string
}
