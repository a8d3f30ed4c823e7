package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Overlap is two sections that exclude each other and were in together.
type Overlap struct {
	A, B Section
	// From and To bound the time in which both certainly were in.
	From, To time.Duration
}

// String names both sections and the length of the overlap.
func (o Overlap) String() string {
	return fmt.Sprintf("%s, %s, was in together with %s, %s, for at least %v", o.A.ID, o.A.Mode, o.B.ID, o.B.Mode, o.To-o.From)
}

// Overlaps returns all pairs of sections that exclude each other and overlap. A section can
// have got in as late as its first log entry, and have left as early as its last one. So
// sections whose entries don't overlap have an order, and others have none. Sections that
// touch do not overlap.
func Overlaps(sections []Section) (found []Overlap) {
	sections = slices.DeleteFunc(slices.Clone(sections), func(s Section) bool { return !s.Entered })
	slices.SortFunc(sections, func(a, b Section) int { return cmp.Or(cmp.Compare(a.In, b.In), cmp.Compare(a.Last, b.Last)) })
	var open []Section // that the next sections can overlap
	for _, s := range sections {
		open = slices.DeleteFunc(open, func(o Section) bool { return o.Last <= s.In })
		for _, o := range open {
			if s.Mode.conflicts(o.Mode) && s.Last > o.In {
				found = append(found, Overlap{o, s, s.In, min(o.Last, s.Last)})
			}
		}
		open = append(open, s)
	}
	return found
}
