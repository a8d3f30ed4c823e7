package history

import (
	"fmt"
	"time"
)

// written is every put, or every delete, of a log, by key.
type written map[string][]writer

type writer struct {
	Act
	stay string
}

func writes(stays []Stay, op string) written {
	w := written{}
	for _, s := range stays {
		for _, a := range s.Acts {
			if a.Op == op {
				w[a.Key] = append(w[a.Key], writer{a, s.ID})
			}
		}
	}
	return w
}

// changes judges what children saw in the store beside what they did themselves.
// Late is how many of it no lock can prevent: a request that was never answered, of
// a process that was killed or cut off, may arrive at any later time.
func changes(stays []Stay) (found []Violation, late int) {
	puts, deletes := writes(stays, "put"), writes(stays, "delete")
	for _, s := range stays {
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

// change judges one, given who has done it.
func change(s Stay, c Change, by []writer) (v Violation, late bool) {
	since := known(s, c.Key)
	for _, w := range by {
		before := w.Answered && w.Return < since
		switch {
		case !w.Answered:
			return Violation{}, true
		case before && !c.Appeared:
			return Violation{}, true // nobody promises that what is deleted isn't listed
		case before:
			return Violation{StaleListing, []string{s.ID, w.stay}, fmt.Sprintf(
				"%s, %s, listed %q late: it was not in a listing that began %v after %s's put of it was answered",
				s.ID, s.Mode, c.Key, since-w.Return, w.stay)}, false
		case c.Appeared:
			return Violation{ForeignWrite, []string{s.ID, w.stay}, fmt.Sprintf(
				"%q was written by %s while %s was in, %s", c.Key, w.stay, s.ID, s.Mode)}, false
		default:
			return Violation{ForeignDelete, []string{s.ID, w.stay}, fmt.Sprintf(
				"%q was deleted by %s while %s was in, %s", c.Key, w.stay, s.ID, s.Mode)}, false
		}
	}
	if c.Appeared {
		return Violation{ForeignWrite, []string{s.ID}, fmt.Sprintf(
			"%q was written by nobody who is known while %s was in, %s", c.Key, s.ID, s.Mode)}, false
	}
	return Violation{LostObject, []string{s.ID}, fmt.Sprintf(
		"%q was in the store and isn't listed any more, and nobody has deleted it; %s, %s, has seen it", c.Key, s.ID, s.Mode)}, false
}

// known is since when a stay must have known of what became of a key: since it has
// put it itself, or since its first listing began.
func known(s Stay, key string) time.Duration {
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
