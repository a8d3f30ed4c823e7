package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Result is the outcome of a judgement.
type Result string

const (
	// NotFound: no violation was found. It proves nothing about cases that didn't occur.
	NotFound Result = "no_violation_found"
	// Violated: the lock failed, or the store did something that no lock can prevent.
	Violated Result = "violation"
	// Unknown: there is no verdict. Verdict.Why is the reason.
	Unknown Result = "unknown"
)

// The names of violations.
const (
	TwoIn         = "overlap"        // two sections that exclude each other held the lock at the same time
	ForeignWrite  = "foreign_write"  // an object appeared while another process held the exclusive lock
	ForeignDelete = "foreign_delete" // an object vanished while another process held a lock
	StaleListing  = "stale_listing"  // a listing didn't show an object that was written before the listing began
	LostObject    = "lost_object"    // the store lost an object
)

// Violation is one violation, with the IDs of its sections.
type Violation struct {
	Name     string   `json:"name"`  // one of the names above
	Sections []string `json:"stays"` // IDs
	Text     string   `json:"text"`  // a sentence for people
}

// Verdict is the judgement of a history.
type Verdict struct {
	Result     Result      // whether there is a violation
	Why        string      // the reason for an unknown result
	Violations []Violation // empty unless Result is Violated
	Late       int         // number of changes by requests without an answer
}

// Judge decides whether the sections can have happened under a working lock. It can be called while other sections
// still run. It never returns Unknown.
func Judge(sections []Section) Verdict {
	changed, late := changes(sections)
	v := Verdict{Result: NotFound, Violations: append(overlaps(sections), changed...), Late: late}
	if len(v.Violations) > 0 {
		v.Result = Violated
	}
	return v
}

// overlaps returns all pairs of sections that exclude each other and overlap. A section might have acquired the lock as
// late as its first entry, and have released it as early as its last one. So two sections overlap only if one of them
// logs an entry strictly between the first and last entries of the other. If no two sections do, a readers-writer lock
// allows the history: each section acquires at its first entry and releases at its last one.
func overlaps(sections []Section) (found []Violation) {
	sections = slices.DeleteFunc(slices.Clone(sections), func(s Section) bool { return !s.Entered })
	slices.SortFunc(sections, func(a, b Section) int { return cmp.Or(cmp.Compare(a.In, b.In), cmp.Compare(a.Last, b.Last)) })
	var open []Section // the earlier sections with which the next ones might overlap
	for _, s := range sections {
		open = slices.DeleteFunc(open, func(o Section) bool { return o.Last <= s.In })
		for _, o := range open {
			if s.Mode.conflicts(o.Mode) && s.Last > o.In {
				found = append(found, Violation{TwoIn, []string{o.ID, s.ID}, fmt.Sprintf("%s, %s, held the lock together with %s, %s, for at least %v",
					o.ID, o.Mode, s.ID, s.Mode, (min(o.Last, s.Last) - s.In).Round(time.Millisecond))})
			}
		}
		open = append(open, s)
	}
	return found
}

// Conflicts returns the number of sections that met another holder: while they tried to acquire the lock, a section that
// excludes them certainly held it. All sections must have acquired the lock, or must have tried until they were refused.
func Conflicts(sections []Section) (n int) {
	holders := slices.DeleteFunc(slices.Clone(sections), func(s Section) bool { return !s.Entered })
	slices.SortFunc(holders, func(a, b Section) int { return cmp.Compare(a.In, b.In) })
	// longest has, by the mode that is tried, the latest end among the first i holders that exclude it.
	longest := map[Mode][]time.Duration{Shared: {0}, Exclusive: {0}}
	for i, h := range holders {
		for mode, ends := range longest {
			end := ends[i]
			if mode.conflicts(h.Mode) {
				end = max(end, h.Last)
			}
			longest[mode] = append(ends, end)
		}
	}
	for _, s := range sections {
		tried := s.Ended
		if s.Entered {
			tried = s.In
		}
		before, _ := slices.BinarySearchFunc(holders, tried, func(h Section, t time.Duration) int { return cmp.Compare(h.In, t) })
		if longest[s.Mode][before] > s.Started {
			n++
		}
	}
	return n
}

// writer is an act that wrote or deleted an object, with its section.
type writer struct {
	Act
	section string
}

// first returns, by key, the first put or the first delete of the key.
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

// changes returns the violations among the changes that children found in the store. late counts the changes that no
// lock can prevent: if a process was killed or cut off, its request without an answer can reach the store at any later
// time.
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

// change returns the violation that a change shows, or false if no lock can prevent the change. w is the request that
// made the change. It is empty if no process has logged one.
func change(s Section, c Change, w writer) (v Violation, ok bool) {
	since := known(s, c.Key)
	before := w.Answered && w.Return < since
	v.Sections = []string{s.ID, w.section}
	switch {
	case w.section == "" && c.Appeared:
		return Violation{ForeignWrite, []string{s.ID}, fmt.Sprintf(
			"%q was written by an unknown process while %s held the %s lock", c.Key, s.ID, s.Mode)}, true
	case w.section == "":
		return Violation{LostObject, []string{s.ID}, fmt.Sprintf(
			"%q was in the store and is no longer listed, although no process deleted it; %s, %s, noticed this", c.Key, s.ID, s.Mode)}, true
	case !w.Answered, before && !c.Appeared: // a listing can still show a deleted object
		return v, false
	case before:
		v.Name, v.Text = StaleListing, fmt.Sprintf("%s, %s, listed without %q, %v after %s's put of it was answered",
			s.ID, s.Mode, c.Key, (since-w.Return).Round(time.Millisecond), w.section)
	case c.Appeared:
		v.Name, v.Text = ForeignWrite, fmt.Sprintf("%q was written by %s while %s held the %s lock", c.Key, w.section, s.ID, s.Mode)
	default:
		v.Name, v.Text = ForeignDelete, fmt.Sprintf("%q was deleted by %s while %s held the %s lock", c.Key, w.section, s.ID, s.Mode)
	}
	return v, true
}

// known returns the time from which a section must know whether a key exists: its own put of the key, or else its first
// listing.
func known(s Section, key string) time.Duration {
	since := s.In
	for _, a := range s.Acts {
		switch {
		case a.Op == "put" && a.Key == key:
			return a.Call
		case a.Op == "list" && since == s.In:
			since = a.Call
		}
	}
	return since
}
