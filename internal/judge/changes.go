package judge

import (
	"fmt"
	"time"
)

// written is every put, or every delete, of a log, by key.
type written map[string][]writer

type writer struct {
	Act
	section string
}

func writes(sections []Section, op string) written {
	w := written{}
	for _, s := range sections {
		for _, a := range s.Acts {
			if a.Op == op {
				w[a.Key] = append(w[a.Key], writer{a, s.ID})
			}
		}
	}
	return w
}

// changes returns the violations among the changes that children saw in the store. late
// counts the changes that no lock can prevent: an unanswered request of a process that was
// killed or cut off can arrive at any later time.
func changes(sections []Section) (found []Violation, late int) {
	puts, deletes := writes(sections, "put"), writes(sections, "delete")
	for _, s := range sections {
		for _, c := range s.Changes {
			by := deletes[c.Key]
			if c.Appeared {
				by = puts[c.Key]
			}
			v, innocent := change(s, c, by)
			if innocent {
				late++
				continue
			}
			found = append(found, v)
		}
	}
	return found, late
}

// change returns the violation of one change, or reports that it is late, given the acts
// that can have made it.
func change(s Section, c Change, by []writer) (v Violation, late bool) {
	since := known(s, c.Key)
	for _, w := range by {
		before := w.Answered && w.Return < since
		switch {
		case !w.Answered:
			return Violation{}, true
		case before && !c.Appeared:
			return Violation{}, true // a listing can still have a deleted object
		case before:
			return Violation{StaleListing, []string{s.ID, w.section}, fmt.Sprintf(
				"%s, %s, listed %q late: it was not in a listing that began %v after %s's put of it was answered",
				s.ID, s.Mode, c.Key, since-w.Return, w.section)}, false
		case c.Appeared:
			return Violation{ForeignWrite, []string{s.ID, w.section}, fmt.Sprintf(
				"%q was written by %s while %s was in, %s", c.Key, w.section, s.ID, s.Mode)}, false
		default:
			return Violation{ForeignDelete, []string{s.ID, w.section}, fmt.Sprintf(
				"%q was deleted by %s while %s was in, %s", c.Key, w.section, s.ID, s.Mode)}, false
		}
	}
	if c.Appeared {
		return Violation{ForeignWrite, []string{s.ID}, fmt.Sprintf(
			"%q was written by no known process while %s was in, %s", c.Key, s.ID, s.Mode)}, false
	}
	return Violation{LostObject, []string{s.ID}, fmt.Sprintf(
		"%q was in the store and isn't listed any more, and no process deleted it; %s, %s, has seen it", c.Key, s.ID, s.Mode)}, false
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
