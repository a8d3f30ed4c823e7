// Package judge decides whether real processes broke a lock. Each process logs when it was
// started, when its critical section began, each act in it, and its end; all of them read
// one clock. That is a history of operations on a readers-writer lock, and porcupine decides
// whether they can have happened in some order. A second check, independent of porcupine,
// names the critical sections that overlap; the two must agree. A third check is what the
// processes saw in the store: objects that appeared or vanished beside an exclusive holder
// that neither wrote nor deleted them.
//
// A log that can't be understood, or a search that takes too long, never counts as "no
// violation": the result is unknown.
package judge

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

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

// Section is a critical section: one process with its child, from the start until both ended.
type Section struct {
	ID     string
	Client int
	Mode   Mode

	Started time.Duration
	// Entered: the child ran. It certainly was in its critical section from In to Last,
	// its first and last log entries.
	Entered  bool
	In, Last time.Duration
	Ended    time.Duration

	Acts    []Act
	Changes []Change
	Faults  []Event
}

// Act is a request of a child to the repository.
type Act struct {
	Op, Key string
	Call    time.Duration
	// Answered is false if it isn't known whether it was done, or will be.
	Answered bool
	Return   time.Duration
}

const opList = "list"

// Change is an object that another process put or deleted between two listings of a child.
type Change struct {
	Key      string
	Appeared bool
	At       time.Duration
}

// Read makes a section of its events, which must be in order. It returns an error unless
// they are complete and consistent: a log that isn't understood must not count as harmless.
func Read(events []Event) (Section, error) {
	var r reader
	for i, e := range events {
		if err := r.read(e); err != nil {
			return Section{}, fmt.Errorf("event %d of section %q, %s: %w", i+1, e.ID, e.Kind, err)
		}
	}
	if r.state != ended {
		return Section{}, fmt.Errorf("the log of section %q has no end", r.section.ID)
	}
	return r.section, nil
}

// reader is a section that is being read.
type reader struct {
	section Section
	state   state
	last    time.Duration
}

type state int

const (
	unborn state = iota
	started
	inside
	acting // a call has no return yet
	out
	ended
)

// after lists the states in which an event can come. A child can be killed in any of them.
var after = map[Kind][]state{
	Start: {unborn}, In: {started}, Call: {inside}, Return: {acting}, Appeared: {inside}, Vanished: {inside}, Beat: {inside}, Out: {inside},
	End: {started, inside, acting, out}, Fault: {started, inside, acting, out},
}

func (r *reader) read(e Event) error {
	s := &r.section
	if !slices.Contains(after[e.Kind], r.state) {
		return errors.New("it can't come here")
	}
	if e.Kind != Start && e.ID != s.ID {
		return fmt.Errorf("it is not of section %q", s.ID)
	}
	if e.Kind == Fault { // another process logs it
		s.Faults = append(s.Faults, e)
		return nil
	}
	if e.At < r.last {
		return fmt.Errorf("its time, %v, is before %v", e.At, r.last)
	}
	r.last = e.At
	switch e.Kind {
	case Start:
		if e.ID == "" || e.Mode != Shared && e.Mode != Exclusive {
			return fmt.Errorf("it has no id, or an unknown mode %q", e.Mode)
		}
		s.ID, s.Client, s.Mode, s.Started = e.ID, e.Client, e.Mode, e.At
		r.state = started
		return nil
	case End:
		s.Ended = e.At
		r.state = ended
		return nil
	case In:
		s.Entered, s.In = true, e.At
		r.state = inside
	case Call:
		if e.Op != "put" && e.Op != "delete" && e.Op != opList {
			return fmt.Errorf("unknown op %q", e.Op)
		}
		s.Acts = append(s.Acts, Act{Op: e.Op, Key: e.Key, Call: e.At})
		r.state = acting
	case Return:
		act := &s.Acts[len(s.Acts)-1]
		act.Answered, act.Return = e.Error == "", e.At
		r.state = inside
	case Appeared, Vanished:
		s.Changes = append(s.Changes, Change{Key: e.Key, Appeared: e.Kind == Appeared, At: e.At})
	case Out:
		r.state = out
	}
	s.Last = e.At
	return nil
}
