package audit

import (
	"slices"
	"time"
)

// Stop is a time in which a command was stopped: by repolock, for its lost lock or for a look at
// it, or by a person. Its end is zero if the log doesn't have it.
type Stop struct{ From, To time.Time }

// stops are stops by one cause, in order.
type stops []Stop

// begin begins a stop, unless one is under way.
func (s *stops) begin(t time.Time) {
	if n := len(*s); n == 0 || !(*s)[n-1].To.IsZero() {
		*s = append(*s, Stop{From: t})
	}
}

// end ends the stop that is under way, if there is one.
func (s stops) end(t time.Time) {
	if n := len(s); n > 0 && s[n-1].To.IsZero() {
		s[n-1].To = t
	}
}

// union returns the times in which a command was stopped by either cause.
func union(a, b stops) (all []Stop) {
	both := slices.Concat(a, b)
	slices.SortStableFunc(both, func(a, b Stop) int { return a.From.Compare(b.From) })
	for _, next := range both {
		n := len(all)
		switch {
		case n == 0 || !all[n-1].To.IsZero() && next.From.After(all[n-1].To):
			all = append(all, next)
		case all[n-1].To.IsZero():
		case next.To.IsZero() || next.To.After(all[n-1].To):
			all[n-1].To = next.To
		}
	}
	return all
}

// StoppedFor returns how long the command was stopped, as far as the log has the ends.
func (s *Span) StoppedFor() (d time.Duration) {
	for _, stop := range s.Stops {
		if !stop.To.IsZero() {
			d += stop.To.Sub(stop.From)
		}
	}
	return d
}

// StoppedSince returns when a stop began whose end the log doesn't have, or the zero time.
func (s *Span) StoppedSince() time.Time {
	if n := len(s.Stops); n > 0 && s.Stops[n-1].To.IsZero() {
		return s.Stops[n-1].From
	}
	return time.Time{}
}
