package judge

import "time"

// Mode of a lock.
type Mode string

const (
	Shared    Mode = "shared"
	Exclusive Mode = "exclusive"
)

// conflicts reports whether two modes exclude each other.
func (m Mode) conflicts(other Mode) bool { return m == Exclusive || other == Exclusive }

// Kind of an event.
type Kind string

const (
	// Start: the process that takes the lock is about to be started.
	Start Kind = "start"
	// In: its child runs and has done nothing yet.
	In Kind = "in"
	// Call: the child is about to send a request to the repository. Return: the request
	// was answered; after an Error it can have been done, or be done later, or never.
	Call   Kind = "call"
	Return Kind = "return"
	// Appeared and Vanished: the child found that another process wrote or deleted the
	// object with the Key.
	Appeared Kind = "appeared"
	Vanished Kind = "vanished"
	// Beat: the child is still in its critical section. A child that sends no requests logs it
	// over and over.
	Beat Kind = "beat"
	// Out: the child has done all its work.
	Out Kind = "out"
	// End: no process of the child can run any more.
	End Kind = "end"
	// Fault: the process that takes the lock was killed, stopped or terminated.
	Fault Kind = "fault"
)

// Event is one line of a log.
type Event struct {
	// At is a reading of the clock that all processes share, in nanoseconds. A process
	// reads it before the act of a Call or an End, and after that of an In or a Return.
	At   time.Duration `json:"at"`
	Kind Kind          `json:"kind"`
	// ID names the critical section, from Start to End.
	ID string `json:"id"`
	// Client and Mode are those of a Start.
	Client int  `json:"client,omitempty"`
	Mode   Mode `json:"mode,omitempty"`
	// Op of a Call is "put", "delete" or "list", and Key the object, or the prefix.
	Op    string `json:"op,omitempty"`
	Key   string `json:"key,omitempty"`
	Error string `json:"error,omitempty"` // of a Return
	Text  string `json:"text,omitempty"`  // of an In, a Fault or an End, for people
	PID   int    `json:"pid,omitempty"`   // of an In, if the child is to be found by it
}
