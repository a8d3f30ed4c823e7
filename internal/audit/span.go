package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Span is a lock that was held or refused, in a log.
type Span struct {
	LockName  string    `json:"lock_name"`
	Mode      string    `json:"mode"`
	Operation string    `json:"operation"`
	Who       string    `json:"who"`
	Asked     time.Time `json:"asked_at"`             // for the lock
	Held      time.Time `json:"acquired_at,omitzero"` // zero: it was refused
	// End is when the lock was released, lost or refused. It is zero if the log doesn't have
	// it: the lock is held still, or its holder was killed.
	End time.Time `json:"ended_at,omitzero"`

	TTL time.Duration `json:"-"`
	// Outcome is how it ended, in a few words.
	Outcome string `json:"-"`
	Lost    bool   `json:"-"`
	// Stops are the times in which the command was stopped. The last can have no end.
	Stops []Stop `json:"-"`
}

// Stop is a time in which a command was stopped, for its lost lock or for a look at it.
type Stop struct{ From, To time.Time }

// Until returns the end of a span, or if that is unknown, when the lock would have expired
// without a refresh.
func (s *Span) Until() time.Time {
	switch {
	case !s.End.IsZero():
		return s.End
	case !s.Held.IsZero():
		return s.Held.Add(s.TTL)
	default:
		return s.Asked
	}
}

// Waited returns the time until the lock was acquired or refused.
func (s *Span) Waited() time.Duration {
	if s.Held.IsZero() {
		return s.End.Sub(s.Asked)
	}
	return s.Held.Sub(s.Asked)
}

// HeldFor returns how long the lock was held, if it was and the log has the end.
func (s *Span) HeldFor() (time.Duration, bool) {
	if s.Held.IsZero() || s.End.IsZero() {
		return 0, false
	}
	return s.End.Sub(s.Held), true
}

// StoppedFor returns how long the command was stopped, as far as the log has it.
func (s *Span) StoppedFor() (d time.Duration) {
	for _, stop := range s.Stops {
		if !stop.To.IsZero() {
			d += stop.To.Sub(stop.From)
		}
	}
	return d
}

// Removal is the removal of a lock that was stale, or that was broken.
type Removal struct {
	At   time.Time `json:"at"`
	Who  string    `json:"who"`
	What string    `json:"what"`
	Of   string    `json:"of"`
}

// History is the content of a log, in order.
type History struct {
	Spans    []*Span
	Removals []Removal
}

// NewHistory puts the records of a log together.
func NewHistory(records []Record) History {
	var h History
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b Record) int { return a.Timestamp.Compare(b.Timestamp) })
	open := map[string]*Span{}
	for _, r := range records {
		s := open[r.RequestID]
		if s == nil && r.ResumedFrom != "" {
			s = open[r.ResumedFrom]
			open[r.RequestID] = s
		}
		switch {
		case r.Event == Acquired:
			s = newSpan(r)
			s.Held, s.TTL = r.Timestamp, time.Duration(r.TTLSeconds*float64(time.Second))
			open[r.RequestID] = s
			h.Spans = append(h.Spans, s)
		case r.Event == Blocked:
			s = newSpan(r)
			s.End, s.Outcome = r.Timestamp, "refused"
			if len(r.HeldBy) > 0 {
				s.Outcome += ": held by " + r.HeldBy[0].who()
			}
			h.Spans = append(h.Spans, s)
		case r.Event == Stolen || r.Event == Broken:
			h.Removals = append(h.Removals, removal(r))
		case s != nil:
			s.follow(r)
		}
	}
	slices.SortStableFunc(h.Spans, func(a, b *Span) int { return cmp.Or(a.Asked.Compare(b.Asked), cmp.Compare(a.Mode, b.Mode)) })
	return h
}

func newSpan(r Record) *Span {
	return &Span{
		Mode: r.Mode, Operation: r.Operation, LockName: r.LockName, Who: who(r.Actor, r.Hostname, r.PID),
		Asked: r.Timestamp.Add(-time.Duration(r.WaitedSeconds * float64(time.Second))),
	}
}

// follow adds an event of a lock that was acquired.
func (s *Span) follow(r Record) {
	resumed := func() {
		if n := len(s.Stops); n > 0 && s.Stops[n-1].To.IsZero() {
			s.Stops[n-1].To = r.Timestamp
		}
	}
	switch r.Event {
	case Released:
		resumed()
		if s.End.IsZero() {
			s.End = r.Timestamp
		}
		switch {
		case s.Lost:
		case r.Result == Success:
			s.Outcome = "success"
		case r.ExitCode != nil:
			s.Outcome = fmt.Sprintf("failure, exit code %d", *r.ExitCode)
		default:
			s.Outcome = "failure"
		}
	case Lost:
		if !s.Lost { // a resume that fails reports the loss again
			s.End = r.Timestamp
		}
		s.Lost, s.Outcome = true, "lost: "+r.Error
	case Paused, ClocksParted, GuardLost:
		if r.Event == GuardLost && r.Action != CommandStopped {
			break // it runs on
		}
		if n := len(s.Stops); n == 0 || !s.Stops[n-1].To.IsZero() {
			s.Stops = append(s.Stops, Stop{From: r.Timestamp})
		}
	case ClocksSettled, GuardReplaced:
		resumed()
	case Resumed:
		resumed()
		s.Lost, s.End, s.Outcome = false, time.Time{}, ""
	case ReleaseFailed:
		if s.End.IsZero() {
			s.End = r.Timestamp
		}
		s.Outcome = "not removed: " + r.Error
	}
}

func removal(r Record) Removal {
	m := Removal{At: r.Timestamp, Who: who(r.Actor, r.Hostname, r.PID), What: "removed the stale lock of"}
	if r.Event == Broken {
		m.What = "broke the lock of"
	}
	if len(r.HeldBy) > 0 {
		m.Of = r.HeldBy[0].who()
	}
	return m
}

func (h Holder) who() string {
	return fmt.Sprintf("%s, %s", cmp.Or(h.Holder, "unknown"), cmp.Or(h.Intent, "unknown"))
}

func who(user, host string, pid int) string {
	return fmt.Sprintf("%s@%s (pid %d)", cmp.Or(user, "?"), cmp.Or(host, "?"), pid)
}
