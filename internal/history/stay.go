package history

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Stay is one process with its child: from its start until nothing of it is left.
type Stay struct {
	ID     string
	Client int
	Mode   Mode

	Started time.Duration
	// Entered: the child ran. From In to Last, the first and the last that it wrote
	// down, it certainly was in its critical section.
	Entered  bool
	In, Last time.Duration
	Ended    time.Duration

	Acts    []Act
	Changes []Change
	Faults  []Event
}

// Act is what a child did in the repository.
type Act struct {
	Op, Key string
	Call    time.Duration
	// Answered is false if nobody knows whether it was done, or will be.
	Answered bool
	Return   time.Duration
}

const opList = "list"

// Change is what a child saw of others: an object of whoever appeared or vanished
// between two of its listings.
type Change struct {
	Key      string
	Appeared bool
	At       time.Duration
}

// Read makes a stay of its events, in their order. It fails unless they are whole
// and make sense: what isn't understood must not pass for harmless.
func Read(events []Event) (Stay, error) {
	var r reader
	for i, e := range events {
		if err := r.read(e); err != nil {
			return Stay{}, fmt.Errorf("event %d of stay %q, %s: %w", i+1, e.ID, e.Kind, err)
		}
	}
	if r.state != ended {
		return Stay{}, fmt.Errorf("the log of stay %q has no end", r.stay.ID)
	}
	return r.stay, nil
}

// reader is a stay of which a part was read.
type reader struct {
	stay  Stay
	state state
	last  time.Duration
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

// after says in which states an event may come. A child can be killed anywhere.
var after = map[Kind][]state{
	Start: {unborn}, In: {started}, Call: {inside}, Return: {acting}, Appeared: {inside}, Vanished: {inside}, Out: {inside},
	End: {started, inside, acting, out}, Fault: {started, inside, acting, out},
}

func (r *reader) read(e Event) error {
	s := &r.stay
	if !slices.Contains(after[e.Kind], r.state) {
		return errors.New("it can't come here")
	}
	if e.Kind != Start && e.ID != s.ID {
		return fmt.Errorf("it is not of stay %q", s.ID)
	}
	if e.Kind == Fault { // which is noted by another process
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
