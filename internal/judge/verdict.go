package judge

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Result is the outcome of a judgement.
type Result string

const (
	// NotFound: no violation was found. That proves nothing about cases not tried.
	NotFound Result = "no_violation_found"
	// Violated: the lock failed, or the store did something that no lock withstands.
	Violated Result = "violation"
	// Unknown: there is no verdict.
	Unknown Result = "unknown"
)

// Names of violations.
const (
	TwoIn         = "overlap"        // two sections that exclude each other were in together
	ForeignWrite  = "foreign_write"  // an exclusive holder saw an object appear
	ForeignDelete = "foreign_delete" // a holder saw an object vanish
	StaleListing  = "stale_listing"  // a listing missed what was written before it began
	LostObject    = "lost_object"    // the store lost one
)

// Violation is one violation, with the IDs of its sections.
type Violation struct {
	Name     string   `json:"name"`
	Sections []string `json:"stays"`
	Text     string   `json:"text"`
}

// Verdict is the judgement of a history.
type Verdict struct {
	Result     Result
	Why        string // reason of an unknown result
	Violations []Violation
	Late       int // number of changes by requests that were never answered

	info porcupine.LinearizationInfo
}

// Judge decides whether the sections can have happened under a lock. It gives up the search
// for an order after the timeout.
func Judge(sections []Section, timeout time.Duration) Verdict {
	var v Verdict
	v.Violations = Seen(sections)
	_, v.Late = changes(sections)
	var order porcupine.CheckResult
	order, v.info = porcupine.CheckOperationsVerbose(model, operations(sections), timeout)
	for _, s := range sections {
		for _, f := range s.Faults { // drawn below the clients
			v.info.AddAnnotations([]porcupine.Annotation{{Tag: "faults", Start: int64(f.At), Description: f.Text + " " + s.ID}})
		}
	}
	switch {
	case order == porcupine.Illegal && len(v.Violations) == 0:
		// overlaps is wrong then: believe porcupine.
		v.Violations = []Violation{{Name: TwoIn, Text: "porcupine finds no order in which this can have happened under a lock"}}
		fallthrough
	case len(v.Violations) > 0:
		v.Result = Violated
	case order == porcupine.Ok:
		v.Result = NotFound
	default:
		v.Result, v.Why = Unknown, fmt.Sprintf("porcupine didn't come to an end in %v", timeout)
	}
	return v
}

// Picture writes porcupine's drawing of the history, with the faults, as HTML.
func (v Verdict) Picture(w io.Writer) error {
	return porcupine.Visualize(model, v.info, w)
}

// Seen returns all violations that need no search. It can be called with the sections that
// have ended while others go on.
func Seen(sections []Section) []Violation {
	changed, _ := changes(sections)
	return append(overlaps(sections), changed...)
}

// overlaps returns all pairs of sections that exclude each other and were in together. A
// section can have got in as late as its first log entry, and have left as early as its last
// one. So sections whose entries don't overlap have an order, and others have none. Sections
// that touch do not overlap.
func overlaps(sections []Section) (found []Violation) {
	sections = slices.DeleteFunc(slices.Clone(sections), func(s Section) bool { return !s.Entered })
	slices.SortFunc(sections, func(a, b Section) int { return cmp.Or(cmp.Compare(a.In, b.In), cmp.Compare(a.Last, b.Last)) })
	var open []Section // that the next sections can overlap
	for _, s := range sections {
		open = slices.DeleteFunc(open, func(o Section) bool { return o.Last <= s.In })
		for _, o := range open {
			if s.Mode.conflicts(o.Mode) && s.Last > o.In {
				found = append(found, Violation{TwoIn, []string{o.ID, s.ID}, fmt.Sprintf(
					"%s, %s, was in together with %s, %s, for at least %v", o.ID, o.Mode, s.ID, s.Mode, (min(o.Last, s.Last) - s.In).Round(time.Millisecond))})
			}
		}
		open = append(open, s)
	}
	return found
}

// writer is an act that wrote or deleted an object.
type writer struct {
	Act
	section string
}

// first returns the first act of a kind on each key.
func first(sections []Section, op string) map[string]writer {
	by := map[string]writer{}
	for _, s := range sections {
		for _, a := range s.Acts {
			if by[a.Key].section == "" && a.Op == op {
				by[a.Key] = writer{a, s.ID}
			}
		}
	}
	return by
}

// changes returns the violations among the changes that children saw in the store. late
// counts the changes that no lock can prevent: an unanswered request of a process that was
// killed or cut off can arrive at any later time.
func changes(sections []Section) (found []Violation, late int) {
	puts, deletes := first(sections, "put"), first(sections, "delete")
	for _, s := range sections {
		for _, c := range s.Changes {
			w := deletes[c.Key]
			if c.Appeared {
				w = puts[c.Key]
			}
			if v, ok := change(s, c, w); ok {
				found = append(found, v)
			} else {
				late++
			}
		}
	}
	return found, late
}

// change returns the violation of one change, given the act that made it, if there is one. It
// returns false if no lock can prevent it.
func change(s Section, c Change, w writer) (v Violation, ok bool) {
	since := known(s, c.Key)
	before := w.Answered && w.Return < since
	v.Sections = []string{s.ID, w.section}
	switch {
	case w.section == "" && c.Appeared:
		return Violation{ForeignWrite, []string{s.ID}, fmt.Sprintf(
			"%q was written by no known process while %s was in, %s", c.Key, s.ID, s.Mode)}, true
	case w.section == "":
		return Violation{LostObject, []string{s.ID}, fmt.Sprintf(
			"%q was in the store and isn't listed any more, and no process deleted it; %s, %s, has seen it", c.Key, s.ID, s.Mode)}, true
	case !w.Answered, before && !c.Appeared: // a listing can still have a deleted object
		return v, false
	case before:
		v.Name, v.Text = StaleListing, fmt.Sprintf(
			"%s, %s, listed %q late: it was not in a listing that began %v after %s's put of it was answered",
			s.ID, s.Mode, c.Key, (since-w.Return).Round(time.Millisecond), w.section)
	case c.Appeared:
		v.Name, v.Text = ForeignWrite, fmt.Sprintf("%q was written by %s while %s was in, %s", c.Key, w.section, s.ID, s.Mode)
	default:
		v.Name, v.Text = ForeignDelete, fmt.Sprintf("%q was deleted by %s while %s was in, %s", c.Key, w.section, s.ID, s.Mode)
	}
	return v, true
}

// known returns the time from which a section must see the state of a key: when it put the
// key itself, or when its first listing began.
func known(s Section, key string) time.Duration {
	since := s.In
	for _, a := range s.Acts {
		switch {
		case a.Op == "put" && a.Key == key:
			return a.Call
		case a.Op == opList && since == s.In:
			since = a.Call
		}
	}
	return since
}
