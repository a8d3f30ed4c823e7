package torture

// Fault is what a trial inflicts on a process that holds the lock, or on the lock itself.
type Fault string

const (
	// Calm inflicts nothing: the clients are started together, over and over.
	Calm Fault = "none"
	// Outlast inflicts nothing: the child needs twice the lease.
	Outlast Fault = "long"
	// KillWrapper kills the process that took the lock, and nothing else of it.
	KillWrapper Fault = "kill-wrapper"
	// KillAll kills the wrapper, its helpers and its child at once, as a crash of the machine
	// does.
	KillAll Fault = "kill-all"
	// StopWrapper, StopChild and StopBoth stop them until the lease is over and another client
	// is in, or until twice the lease has passed. Then they continue.
	StopWrapper Fault = "stop-wrapper"
	StopChild   Fault = "stop-child"
	StopBoth    Fault = "stop-both"
	// StopAll stops their helpers, too, as a pause of the machine does.
	StopAll Fault = "stop-all"
	// Clock lets the wall clocks of all clients but the holder be three leases ahead.
	Clock Fault = "clock"
)

// TrialFaults returns all faults of a trial, in the order in which it inflicts them.
func TrialFaults() []Fault {
	return []Fault{Calm, Outlast, KillWrapper, KillAll, StopWrapper, StopChild, StopBoth, StopAll, Clock}
}

// continues reports whether the fault stops processes, which continue later.
func (f Fault) continues() bool {
	return f == StopWrapper || f == StopChild || f == StopBoth || f == StopAll
}
