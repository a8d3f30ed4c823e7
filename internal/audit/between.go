package audit

import "time"

// Between returns the part of a history from since on and before until: locks that were held or
// waited for at some time in between, and removals. A zero time is no limit.
func (h History) Between(since, until time.Time) (part History) {
	for _, s := range h.Spans {
		if !s.Until().Before(since) && (until.IsZero() || s.Asked.Before(until)) {
			part.Spans = append(part.Spans, s)
		}
	}
	for _, m := range h.Removals {
		if !m.At.Before(since) && (until.IsZero() || m.At.Before(until)) {
			part.Removals = append(part.Removals, m)
		}
	}
	return part
}
