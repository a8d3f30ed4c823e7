package history

import "time"

// Mode of a lock.
type Mode string

const (
	Shared    Mode = "shared"
	Exclusive Mode = "exclusive"
)

// conflicts tells whether two modes exclude each other.
func (m Mode) conflicts(other Mode) bool { return m == Exclusive || other == Exclusive }

// Kind of an event.
type Kind string

const (
	// Start: the process that takes the lock is about to be started.
	Start Kind = "start"
	// In: its child runs, and has done nothing yet.
	In Kind = "in"
	// Call: the child is about to do something in the repository, and Return: it
	// was answered; with an Error it may be done, or be done later, or never.
	Call   Kind = "call"
	Return Kind = "return"
	// Appeared and Vanished: the child found that somebody else has written, or
	// deleted, the object with the Key.
	Appeared Kind = "appeared"
	Vanished Kind = "vanished"
	// Out: the child has done all that it had to do.
	Out Kind = "out"
	// End: nothing of the child can run any more.
	End Kind = "end"
	// Fault: something was done to the process that takes the lock.
	Fault Kind = "fault"
)

// Event is one line of a log.
type Event struct {
	// At is a reading of the clock that all processes share, in nanoseconds. It is
	// read before what a Call or an End of a critical section announces is done, and
	// after what In and Return announce.
	At   time.Duration `json:"at"`
	Kind Kind          `json:"kind"`
	// ID names the stay in the critical section, from Start to End.
	ID string `json:"id"`
	// Client and Mode are those of a Start.
	Client int  `json:"client,omitempty"`
	Mode   Mode `json:"mode,omitempty"`
	// Op of a Call is "put", "delete" or "list", and Key the object, or the prefix.
	Op  string `json:"op,omitempty"`
	Key string `json:"key,omitempty"`
	// Error of a Return.
	Error string `json:"error,omitempty"`
	// Text of a Fault or an End, for people.
	Text string `json:"text,omitempty"`
}
