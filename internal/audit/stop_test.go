package audit

import (
	"testing"
	"time"
)

// TestStops: a command is stopped from the first cause on until the last is over.
func TestStops(t *testing.T) {
	for name, test := range map[string]struct {
		events  []Record
		stopped int // seconds
		stops   int
		since   int // of the stop whose end the log lacks; 0: there is none
	}{
		"by a person":   {of(at(1, Suspended, "a", Record{}), at(5, Continued, "a", Record{}), at(7, Suspended, "a", Record{}), at(8, Continued, "a", Record{})), 5, 2, 0},
		"said twice":    {of(at(1, Suspended, "a", Record{}), at(3, Suspended, "a", Record{}), at(5, Continued, "a", Record{}), at(6, Continued, "a", Record{})), 4, 1, 0},
		"and it's lost": {of(at(1, Suspended, "a", Record{}), at(9, Lost, "a", Record{}), at(9, Paused, "a", Record{}), at(12, Resumed, "b", Record{ResumedFrom: "a"}), at(13, Continued, "b", Record{})), 12, 1, 0},
		"in a pause":    {of(at(1, Paused, "a", Record{}), at(2, Suspended, "a", Record{}), at(3, Continued, "a", Record{}), at(4, Resumed, "b", Record{ResumedFrom: "a"})), 3, 1, 0},
		"beyond it":     {of(at(1, Paused, "a", Record{}), at(2, Suspended, "a", Record{}), at(3, Resumed, "b", Record{ResumedFrom: "a"}), at(9, Continued, "b", Record{})), 8, 1, 0},
		"killed":        {of(at(1, Suspended, "a", Record{}), at(5, Released, "a", Record{})), 4, 1, 0},
		"no end":        {of(at(1, Suspended, "a", Record{}), at(2, ClocksParted, "a", Record{}), at(3, ClocksSettled, "a", Record{})), 0, 1, 1},
	} {
		h := NewHistory(append(of(at(0, Acquired, "a", Record{TTLSeconds: 60})), test.events...))
		s := h.Spans[0]
		if got := int(s.StoppedFor() / time.Second); got != test.stopped || len(s.Stops) != test.stops {
			t.Errorf("%s: stopped for %d s, %+v", name, got, s.Stops)
		}
		since := s.StoppedSince()
		if test.since == 0 && !since.IsZero() || test.since > 0 && since.Second() != test.since {
			t.Errorf("%s: stopped since %v", name, since)
		}
	}
}
