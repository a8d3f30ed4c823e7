package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Overlap is two stays that were in together and may not be.
type Overlap struct {
	A, B Stay
	// From and To is when both certainly were in.
	From, To time.Duration
}

// String says who was in with whom, and for how long.
func (o Overlap) String() string {
	return fmt.Sprintf("%s, %s, was in together with %s, %s, for at least %v", o.A.ID, o.A.Mode, o.B.ID, o.B.Mode, o.To-o.From)
}

// Overlaps finds all pairs of stays that exclude each other and don't come one after
// the other. A stay may have been let in as late as its first sign of life, and have
// left as early as its last one: if these times don't overlap there is an order, and if
// they do there is none. Stays that touch come one after the other.
func Overlaps(stays []Stay) (found []Overlap) {
	stays = slices.DeleteFunc(slices.Clone(stays), func(s Stay) bool { return !s.Entered })
	slices.SortFunc(stays, func(a, b Stay) int { return cmp.Or(cmp.Compare(a.In, b.In), cmp.Compare(a.Last, b.Last)) })
	var open []Stay // that may overlap with what comes
	for _, s := range stays {
		open = slices.DeleteFunc(open, func(o Stay) bool { return o.Last <= s.In })
		for _, o := range open {
			if s.Mode.conflicts(o.Mode) && s.Last > o.In {
				found = append(found, Overlap{o, s, s.In, min(o.Last, s.Last)})
			}
		}
		open = append(open, s)
	}
	return found
}
