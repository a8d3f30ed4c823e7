package judge

import (
	"cmp"
	"fmt"
	"slices"
)

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
					"%s, %s, was in together with %s, %s, for at least %v", o.ID, o.Mode, s.ID, s.Mode, min(o.Last, s.Last)-s.In)})
			}
		}
		open = append(open, s)
	}
	return found
}
