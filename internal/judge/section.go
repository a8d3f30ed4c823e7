// Package judge decides from the logs of real processes whether a lock worked. Each process logs its start, its entry
// into the critical section, each request that it sends there, and its end. All processes read the same clock. There are
// two checks:
//
//   - overlaps lists the critical sections that exclude each other and overlap;
//   - changes lists the objects that another process wrote or deleted while a holder's lock excluded
//     that.
//
// A log that can't be read never counts as "no violation": the result is unknown.
package judge

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/fault"
)

// Mode is the mode of a lock.
type Mode string

const (
	Shared    Mode = "shared"
	Exclusive Mode = "exclusive"
)

// conflicts reports whether two modes exclude each other.
func (m Mode) conflicts(other Mode) bool { return m == Exclusive || other == Exclusive }

// Kind is the kind of an event.
type Kind string

const (
	// Start has a time before the start of the process that takes the lock.
	Start Kind = "start"
	// In is the child's first entry in the log: the child runs, and has done nothing yet.
	In Kind = "in"
	// Call is logged before the child sends a request to the repository, and Return after the answer. If a Return has
	// an Error, the store might have processed its request, or might do so at any later time.
	Call   Kind = "call"
	Return Kind = "return"
	// Appeared and Vanished report that another process wrote or deleted the object Key.
	Appeared Kind = "appeared"
	Vanished Kind = "vanished"
	// Beat is logged at short intervals by a child that sends no requests. It shows that the child is still in its
	// critical section.
	Beat Kind = "beat"
	// Out is logged when the child has done all its work.
	Out Kind = "out"
	// End has a time at which neither the process nor its child could run any more.
	End Kind = "end"
	// Fault is logged before the process that takes the lock is killed, stopped or terminated.
	Fault Kind = "fault"
)

// Event is one line of a log.
type Event struct {
	// At is a time of the clock that all processes share, in nanoseconds. A Call has the time before
	// its request was sent, and a Return the time after its answer was received.
	At   time.Duration `json:"at"`
	Kind Kind          `json:"kind"`
	ID   string        `json:"id"` // of the critical section
	// Client and Mode are set in a Start.
	Client int  `json:"client,omitempty"`
	Mode   Mode `json:"mode,omitempty"`
	// Op is "put", "delete" or "list" in a Call. Key is the key of an object, or the prefix of a list.
	Op    string `json:"op,omitempty"`
	Key   string `json:"key,omitempty"`
	Error string `json:"error,omitempty"` // of a Return
	Text  string `json:"text,omitempty"`  // details of an In, a Fault or an End
	PID   int    `json:"pid,omitempty"`   // of the child, in the In of a Witness
}

// Section is a critical section: one process with its child, from the start until both have ended.
type Section struct {
	ID   string // from its events
	Mode Mode   // of its lock

	Started time.Duration // before the process started
	// Entered is set if the child ran. The child certainly was in its critical section from In to Last, which are the
	// times of its first and last entries.
	Entered  bool
	In, Last time.Duration
	Ended    time.Duration // after the process and its child ended

	Acts    []Act    // the child's requests
	Changes []Change // by other processes
	Faults  []Event  // that the process suffered
}

// Act is a request of a child to the repository.
type Act struct {
	Op, Key string        // as in the Event
	Call    time.Duration // before it was sent
	// Answered is false if the store might not have processed the request yet.
	Answered bool
	Return   time.Duration // after its answer was received
}

// Change is an object that another process put or deleted between two listings of a child.
type Change struct {
	Key      string
	Appeared bool
	At       time.Duration
}

// Read makes a section from its events. It returns an error unless they are complete, consistent and in order, because
// a log that can't be understood must not count as harmless.
func Read(events []Event) (Section, error) {
	var s Section
	now, at := unborn, time.Duration(0)
	for i, e := range events {
		if err := fits(e, s.ID, now, at); err != nil {
			return Section{}, fmt.Errorf("%w: event %d of section %q, %s: %w", fault.Unjudged, i+1, e.ID, e.Kind, err)
		}
		s.add(e)
		if e.Kind != Fault { // another process logs a Fault, perhaps late
			now, at = order[e.Kind].to, e.At
		}
	}
	if now != ended {
		return Section{}, fmt.Errorf("%w: the log of section %q has no end", fault.Unjudged, s.ID)
	}
	return s, nil
}

type state int

const (
	unborn state = iota
	started
	inside
	acting // the Return of a Call is still missing
	out
	ended
)

// alive are the states in which a child can be killed.
var alive = []state{started, inside, acting, out}

// order lists, for each kind of event, the states in which it can be logged, and the state after it.
var order = map[Kind]struct {
	from []state
	to   state
}{
	Start: {[]state{unborn}, started}, In: {[]state{started}, inside}, Call: {[]state{inside}, acting}, Return: {[]state{acting}, inside},
	Appeared: {[]state{inside}, inside}, Vanished: {[]state{inside}, inside}, Beat: {[]state{inside}, inside}, Out: {[]state{inside}, out},
	End: {alive, ended}, Fault: {from: alive},
}

// fits returns an error unless e can be the next event of section id. now is the section's state, and at is the time of
// its last event.
func fits(e Event, id string, now state, at time.Duration) error {
	switch {
	case !slices.Contains(order[e.Kind].from, now):
		return errors.New("it is out of order")
	case e.Kind != Start && e.ID != id:
		return fmt.Errorf("it belongs to another section than %q", id)
	case e.Kind != Fault && e.At < at:
		return fmt.Errorf("it was logged at %v, before the previous event, at %v", e.At, at)
	case e.Kind == Start && (e.ID == "" || e.Mode != Shared && e.Mode != Exclusive):
		return fmt.Errorf("it has no id, or an unknown mode %q", e.Mode)
	case e.Kind == Call && e.Op != "put" && e.Op != "delete" && e.Op != "list":
		return fmt.Errorf("unknown op %q", e.Op)
	}
	return nil
}

func (s *Section) add(e Event) {
	switch e.Kind {
	case Start:
		s.ID, s.Mode, s.Started = e.ID, e.Mode, e.At
		return
	case End:
		s.Ended = e.At
		return
	case Fault:
		s.Faults = append(s.Faults, e)
		return
	case In:
		s.Entered, s.In = true, e.At
	case Call:
		s.Acts = append(s.Acts, Act{Op: e.Op, Key: e.Key, Call: e.At})
	case Return:
		act := &s.Acts[len(s.Acts)-1]
		act.Answered, act.Return = e.Error == "", e.At
	case Appeared, Vanished:
		s.Changes = append(s.Changes, Change{Key: e.Key, Appeared: e.Kind == Appeared, At: e.At})
	}
	s.Last = e.At
}
