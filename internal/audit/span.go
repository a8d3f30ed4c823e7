package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// exclusive is the Record.Mode of a lock that excludes all others.
const exclusive = "exclusive"

// Span is one lock in a log, from the request for it to its end. Fields of its JSON are only ever added.
type Span struct {
	LockName  string    `json:"lock_name"`
	Place     string    `json:"place,omitempty"` // see Record.place
	Mode      string    `json:"mode"`
	Operation string    `json:"operation"`
	Job       string    `json:"job,omitempty"`
	Who       string    `json:"who"`
	Host      string    `json:"host,omitempty"`
	Asked     time.Time `json:"asked_at"`             // when the lock was requested
	Held      time.Time `json:"acquired_at,omitzero"` // zero if the lock was refused
	// End is when the lock was released, lost, broken or refused. It is zero if the log lacks the end, because
	// the lock is still held, or its holder was killed. Then the lock was held at Seen, and no longer at Gone.
	End time.Time `json:"ended_at,omitzero"`
	// Seen is the time of the last refresh that the log has, or of another event of the lock. It is zero if the log has
	// the end. The log has a refresh only if another client has recorded it: a client that was refused, or that removed
	// the lock.
	Seen time.Time `json:"seen_at,omitzero"`
	// Gone is when the stale lock was removed, or a client acquired that the lock would have kept out. It is zero if the
	// log has neither.
	Gone time.Time `json:"gone_at,omitzero"`

	// The results of Waited, HeldFor and StoppedFor, in seconds.
	WaitedSeconds  float64  `json:"waited_seconds"`
	HeldSeconds    *float64 `json:"held_seconds,omitempty"`
	StoppedSeconds float64  `json:"stopped_seconds,omitempty"`
	// Outcome describes the end in a few words.
	Outcome string `json:"outcome,omitempty"`
	Lost    bool   `json:"lost"`

	// Stops are the periods in which the command was stopped, in order.
	Stops []Stop `json:"-"`

	last              time.Time // the end of the log
	broken            bool      // a person broke the lock, perhaps before its holder noticed the loss
	paused, suspended bool      // repolock (paused) or a person (suspended) has stopped the command
}

// Stop is a period in which repolock or a person had stopped the command. To is zero if the log lacks the end.
type Stop struct{ From, To time.Time }

// stop records that one cause of a stop, paused or suspended, begins or ends. The command is stopped while at least one
// cause lasts.
func (s *Span) stop(cause *bool, begins bool, at time.Time) {
	was := s.paused || s.suspended
	*cause = begins
	is, n := s.paused || s.suspended, len(s.Stops)
	switch {
	case is == was:
	case !is:
		s.Stops[n-1].To = at
	case n > 0 && s.Stops[n-1].To.Equal(at):
		s.Stops[n-1].To = time.Time{} // make it one stop without a gap
	default:
		s.Stops = append(s.Stops, Stop{From: at})
	}
}

// StoppedFor returns how long the command was stopped. It omits a stop whose end isn't in the log.
func (s *Span) StoppedFor() (d time.Duration) {
	for _, stop := range s.Stops {
		if !stop.To.IsZero() {
			d += stop.To.Sub(stop.From)
		}
	}
	return d
}

// StoppedSince returns the beginning of the last stop if its end isn't in the log, or else the zero time.
func (s *Span) StoppedSince() time.Time {
	if n := len(s.Stops); n > 0 && s.Stops[n-1].To.IsZero() {
		return s.Stops[n-1].From
	}
	return time.Time{}
}

// Until returns the end of a span. If the end isn't in the log, Until returns when the lock was no longer held, or else
// the end of the log.
func (s *Span) Until() time.Time {
	switch {
	case !s.End.IsZero():
		return s.End
	case s.Held.IsZero():
		return s.Asked
	case !s.Gone.IsZero():
		return s.Gone
	case s.last.After(s.Seen):
		return s.last
	default:
		return s.Seen
	}
}

// Waited returns the time until the lock was acquired or refused.
func (s *Span) Waited() time.Duration {
	if s.Held.IsZero() {
		return s.End.Sub(s.Asked)
	}
	return s.Held.Sub(s.Asked)
}

// HeldFor returns how long the lock was held. It reports false if the result is only a lower bound, because the end
// isn't in the log, or if the lock was refused.
func (s *Span) HeldFor() (time.Duration, bool) {
	switch {
	case s.Held.IsZero():
		return 0, false
	case s.End.IsZero():
		return max(s.Seen.Sub(s.Held), 0), false
	default:
		return s.End.Sub(s.Held), true
	}
}

// NoEnd describes a lock whose end the log doesn't have.
const NoEnd = "no end in the log: still held, or its holder was killed"

// Removal is the removal of a stale lock, or of a lock that a person broke.
type Removal struct {
	At    time.Time `json:"at"`
	Who   string    `json:"who"`
	What  string    `json:"what"`
	Of    string    `json:"of"`
	Place string    `json:"place,omitempty"` // see Record.place
}

// History has the locks of a log in the order in which they were requested, and the removals in the order of their
// times. No slice is nil, so that the JSON has no null.
type History struct {
	Spans    []*Span   `json:"locks"`
	Removals []Removal `json:"removals"`
}

// Between returns the locks that were held or waited for at some time from since to until, and the removals in that
// time. A zero time means no limit.
func (h History) Between(since, until time.Time) History {
	part := History{[]*Span{}, []Removal{}}
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

// place names the lock of a record: its repository, followed by #NAME if the lock has a name. For another system's lock
// it is LockPath. It is "" if the record has no LockPath. A repository has the same place whether --repo or --also
// names it.
func (r Record) place() string {
	path, beside := strings.CutPrefix(r.LockPath, "repo:")
	path = strings.TrimPrefix(path, "file://")
	end := strings.LastIndex(path, "/index/lock")
	switch {
	case beside:
		repo, name, _ := strings.Cut(path, "#")
		repo, _, _ = strings.Cut(repo, "?")
		return strings.TrimSuffix(repo, "/") + "#" + name
	case end < 0:
		return path
	case r.LockName != "" && r.LockName != "repository":
		return path[:end] + "#" + r.LockName
	default:
		return path[:max(end, len("/"))]
	}
}

// Several reports whether the history has more than one place. Locks in different places don't exclude each other.
func (h History) Several() bool {
	places := map[string]bool{"": true} // an unknown place doesn't count
	for _, s := range h.Spans {
		places[s.Place] = true
	}
	for _, m := range h.Removals {
		places[m.Place] = true
	}
	return len(places) > 2
}

// NewHistory makes the history from the records of a log.
func NewHistory(records []Record) History {
	h := History{[]*Span{}, []Removal{}}
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
			s.Held, s.Seen = r.Timestamp, r.Timestamp
			open[r.RequestID] = s
			h.Spans = append(h.Spans, s)
		case r.Event == Blocked || r.Event == Stale:
			s = newSpan(r)
			s.End, s.Outcome = r.Timestamp, "refused"
			if len(r.HeldBy) > 0 {
				s.Outcome += ": held by " + r.HeldBy[0].who()
			}
			h.Spans = append(h.Spans, s)
			h.see(open, r)
		case r.Event == Stolen || r.Event == Broken:
			m := removal(r)
			h.Removals = append(h.Removals, m)
			h.see(open, r)
			if s := h.removed(open, r); s != nil {
				s.remove(r, m)
			}
		case s != nil:
			s.follow(r)
		}
	}
	h.close(records)
	for _, s := range h.Spans {
		s.WaitedSeconds, s.StoppedSeconds = seconds(s.Waited()), seconds(s.StoppedFor())
		if d, ok := s.HeldFor(); ok {
			held := seconds(d)
			s.HeldSeconds = &held
		}
	}
	slices.SortStableFunc(h.Spans, func(a, b *Span) int { return cmp.Or(a.Asked.Compare(b.Asked), cmp.Compare(a.Mode, b.Mode)) })
	return h
}

// see notes the last refreshes of the locks that another client has seen.
func (History) see(open map[string]*Span, r Record) {
	for _, held := range r.HeldBy {
		s := open[held.RequestID]
		if s == nil || held.RequestID == "" || held.LastHeartbeatAt == nil {
			continue
		}
		at := *held.LastHeartbeatAt
		if at.After(r.Timestamp) { // the clocks differ
			at = r.Timestamp
		}
		if at.After(s.Seen) {
			s.Seen = at
		}
	}
}

// removed returns the lock that a record removes, or nil if the log doesn't have it.
func (History) removed(open map[string]*Span, r Record) *Span {
	if len(r.HeldBy) == 0 || r.HeldBy[0].RequestID == "" || r.Error != "" {
		return nil
	}
	return open[r.HeldBy[0].RequestID]
}

// remove notes that another client has removed the lock.
func (s *Span) remove(r Record, m Removal) {
	switch {
	case !s.End.IsZero():
	case r.Event == Broken:
		s.End, s.Outcome, s.broken = m.At, "broken by "+m.Who, true
	case s.Gone.IsZero():
		s.Gone, s.Outcome = m.At, "not released; removed as stale by "+m.Who
	}
}

// close finds, for each lock whose end isn't in the log, when it was no longer held: when another client acquired a
// lock that excludes it. The log of one machine can lack the locks of others.
func (h *History) close(records []Record) {
	type key struct {
		place     string
		exclusive bool
	}
	acquired := map[key][]time.Time{} // in order
	for _, r := range records {
		if r.Event == Acquired {
			k := key{r.place(), r.Mode == exclusive}
			acquired[k] = append(acquired[k], r.Timestamp)
		}
	}
	for _, s := range h.Spans {
		if !s.End.IsZero() || s.Held.IsZero() {
			s.Seen, s.Gone = time.Time{}, time.Time{}
			continue
		}
		s.last = records[len(records)-1].Timestamp
		for _, other := range []bool{true, false} {
			if s.Mode != exclusive && !other {
				continue
			}
			times := acquired[key{s.Place, other}]
			at, _ := slices.BinarySearchFunc(times, s.Seen, func(t, seen time.Time) int { return cmp.Or(t.Compare(seen), -1) })
			if at < len(times) && (s.Gone.IsZero() || times[at].Before(s.Gone)) {
				s.Gone = times[at]
			}
		}
	}
}

func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

func newSpan(r Record) *Span {
	return &Span{
		Mode: r.Mode, Operation: r.Operation, Job: r.Job, LockName: r.LockName, Place: r.place(), Host: r.Hostname, Who: who(r.Actor, r.Hostname, r.PID),
		Asked: r.Timestamp.Add(-time.Duration(r.WaitedSeconds * float64(time.Second))),
	}
}

// follow adds a later event of an acquired lock.
func (s *Span) follow(r Record) {
	s.Seen = r.Timestamp
	switch r.Event {
	case Released:
		s.stop(&s.paused, false, r.Timestamp)
		s.stop(&s.suspended, false, r.Timestamp)
		if s.End.IsZero() {
			s.End = r.Timestamp
		}
		switch {
		case s.Lost, s.broken:
		case r.Result == Success || r.Result == Skipped:
			s.Outcome = r.Result
		case r.ExitCode != nil:
			s.Outcome = fmt.Sprintf("failure, exit code %d", *r.ExitCode)
		default:
			s.Outcome = "failure"
		}
	case Lost:
		switch {
		case s.Lost || s.broken: // a resume that fails reports the loss again
		case s.Gone.IsZero():
			s.End = r.Timestamp
		default: // its holder was suspended, and noticed the removal later
			s.End = s.Gone
		}
		s.Lost, s.Outcome = true, "lost: "+r.Error
	case Paused, ClocksParted, GuardLost:
		if r.Event != GuardLost || r.Action == CommandStopped {
			s.stop(&s.paused, true, r.Timestamp)
		}
	case ClocksSettled, GuardReplaced:
		s.stop(&s.paused, false, r.Timestamp)
	case Suspended:
		s.stop(&s.suspended, true, r.Timestamp)
	case Continued:
		s.stop(&s.suspended, false, r.Timestamp)
	case Resumed:
		s.stop(&s.paused, false, r.Timestamp)
		s.Lost, s.broken, s.End, s.Gone, s.Outcome = false, false, time.Time{}, time.Time{}, ""
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
		if r.Error != "" {
			m.What = "failed to break the lock of"
		}
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
