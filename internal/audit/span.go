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
	Place     string    `json:"place,omitempty"` // the repository and the lock's name, or another system's lock
	Mode      string    `json:"mode"`
	Operation string    `json:"operation"`
	Job       string    `json:"job,omitempty"`
	Who       string    `json:"who"`
	Host      string    `json:"host,omitempty"`
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

	seen                time.Time // when the lock was held according to its last event
	repolock, suspended stops     // the stops by repolock, and those by a person
}

// Until returns the end of a span, or if that is unknown, when the lock would have expired
// without a refresh after its last event.
func (s *Span) Until() time.Time {
	switch {
	case !s.End.IsZero():
		return s.End
	case !s.Held.IsZero():
		return s.seen.Add(s.TTL)
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

// Removal is the removal of a lock that was stale, or that was broken.
type Removal struct {
	At   time.Time `json:"at"`
	Who  string    `json:"who"`
	What string    `json:"what"`
	Of   string    `json:"of"`
	// Place is the lock's, as in Span.
	Place string `json:"place,omitempty"`
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
			s.Held, s.seen, s.TTL = r.Timestamp, r.Timestamp, time.Duration(r.TTLSeconds*float64(time.Second))
			open[r.RequestID] = s
			h.Spans = append(h.Spans, s)
		case r.Event == Blocked || r.Event == Stale:
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
	for _, s := range h.Spans {
		s.Stops = union(s.repolock, s.suspended)
	}
	slices.SortStableFunc(h.Spans, func(a, b *Span) int { return cmp.Or(a.Asked.Compare(b.Asked), cmp.Compare(a.Mode, b.Mode)) })
	return h
}

func newSpan(r Record) *Span {
	return &Span{
		Mode: r.Mode, Operation: r.Operation, Job: r.Job, LockName: r.LockName, Place: r.place(), Host: r.Hostname, Who: who(r.Actor, r.Hostname, r.PID),
		Asked: r.Timestamp.Add(-time.Duration(r.WaitedSeconds * float64(time.Second))),
	}
}

// follow adds an event of a lock that was acquired.
func (s *Span) follow(r Record) {
	s.seen = r.Timestamp
	switch r.Event {
	case Released:
		s.repolock.end(r.Timestamp)
		s.suspended.end(r.Timestamp)
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
		s.repolock.begin(r.Timestamp)
	case ClocksSettled, GuardReplaced:
		s.repolock.end(r.Timestamp)
	case Suspended:
		s.suspended.begin(r.Timestamp)
	case Continued:
		s.suspended.end(r.Timestamp)
	case Resumed:
		s.repolock.end(r.Timestamp)
		s.Lost, s.End, s.Outcome = false, time.Time{}, ""
	case ReleaseFailed:
		if s.End.IsZero() {
			s.End = r.Timestamp
		}
		s.Outcome = "not removed: " + r.Error
	}
}

func removal(r Record) Removal {
	m := Removal{At: r.Timestamp, Place: r.place(), Who: who(r.Actor, r.Hostname, r.PID), What: "removed the stale lock of"}
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
