package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Span is a lock that was held or asked for, as a log tells it.
type Span struct {
	Mode, Operation, Who, LockName string
	// Asked is when the lock was asked for, Held when it was granted, and End when it
	// was released or lost, or when it was refused. Held is zero if it never was, and
	// End if the log doesn't tell it: then it is held still, or its holder was killed.
	Asked, Held, End time.Time
	TTL              time.Duration
	// Outcome in a few words.
	Outcome string
	Lost    bool
	// Stops are the times in which the command was stopped, the last perhaps without
	// an end.
	Stops []Stop
}

// Stop is a time in which a command was stopped: its lock was lost, or had to be looked at.
type Stop struct{ From, To time.Time }

// Until is the end of a span, or if that isn't known, when the lock would have expired
// unless it was refreshed.
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

// Waited is until the lock was granted, or refused.
func (s *Span) Waited() time.Duration {
	if s.Held.IsZero() {
		return s.End.Sub(s.Asked)
	}
	return s.Held.Sub(s.Asked)
}

// HeldFor is how long it was held, if it was, and the log tells.
func (s *Span) HeldFor() (time.Duration, bool) {
	if s.Held.IsZero() || s.End.IsZero() {
		return 0, false
	}
	return s.End.Sub(s.Held), true
}

// StoppedFor is for how long the command was stopped, as far as the log tells.
func (s *Span) StoppedFor() (d time.Duration) {
	for _, stop := range s.Stops {
		if !stop.To.IsZero() {
			d += stop.To.Sub(stop.From)
		}
	}
	return d
}

// Removal is a lock that somebody removed: a stale one, or one that they broke.
type Removal struct {
	At            time.Time
	Who, Of, What string
}

// History is what a log tells, in order.
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

// follow takes what happened to a lock after it was granted.
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
		if !s.Lost { // or it is told once more that it can't be resumed
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
