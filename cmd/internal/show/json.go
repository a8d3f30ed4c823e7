package show

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// JSONError is an error in JSON, as the locking specification of tower-fleet defines it (lock/v1, section
// 4.4). Fields are only ever added.
type JSONError struct {
	Error      string     `json:"error"`
	Message    string     `json:"message"`
	Summary    string     `json:"summary,omitempty"` // the message for people, if it differs
	ExitCode   int        `json:"exit_code"`
	LockName   string     `json:"lock_name"`
	HeldBy     *JSONLock  `json:"held_by,omitempty"` // Holders[0], a waiter only if there is no holder
	Holders    []JSONLock `json:"holders,omitempty"`
	More       int        `json:"more,omitempty"`
	Waited     float64    `json:"waited_seconds,omitempty"`
	Suggestion string     `json:"suggestion,omitempty"`
	Repository string     `json:"repository,omitempty"` // the repository of the lock, if it is held

	audit.Staleness       // of a stale lock that blocks us; section 6.3
	TTLSeconds      int64 `json:"ttl_seconds,omitempty"` // of the stale lock
}

// JSONLock is a lock in JSON. Fields are only ever added.
type JSONLock struct {
	Mode         string            `json:"mode"`
	Operation    string            `json:"operation"`
	Holder       string            `json:"holder"`
	Host         string            `json:"host,omitempty"` // of Holder
	PID          int               `json:"pid,omitempty"`  // of Holder
	ID           string            `json:"id,omitempty"`
	State        string            `json:"state,omitempty"`
	User         string            `json:"user,omitempty"`
	Version      string            `json:"version,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Keys         []string          `json:"keys"`
	Verdict      string            `json:"verdict"`
	Status       string            `json:"status"` // as in the column VERDICT of status
	Why          string            `json:"why,omitempty"`
	AcquiredAt   *time.Time        `json:"acquired_at,omitempty"`
	ExpiresAt    *time.Time        `json:"expires_at,omitempty"`
	TTLSeconds   float64           `json:"ttl_seconds"`
	AgeSeconds   float64           `json:"age_seconds"`
	LeftSeconds  float64           `json:"left_seconds"`
	StoreClock   bool              `json:"store_clock"`
	ProcessGone  bool              `json:"process_gone"`
	BreakFailure string            `json:"error,omitempty"`
	Place        string            `json:"place,omitempty"` // a URL of --also, or any place if there are several
	Older        bool              `json:"older,omitempty"` // than --older-than

	specified // some of these values under the names of tower-fleet's specification
}

type specified = audit.Holder

// NewJSONError returns an error in JSON, with all that r knows of the command line.
func NewJSONError(r *Reporter, err error) JSONError {
	if from, ok := errors.AsType[DescribedError](err); ok {
		return from.JSONError
	}
	name, code, hint := r.Describe(err)
	out := JSONError{Error: name, Message: text.Error(err), ExitCode: code, LockName: events.LockName(r.Place.Name), Suggestion: hint}
	var held *replock.HeldError
	if errors.As(err, &held) {
		for _, h := range slices.SortedStableFunc(slices.Values(held.Holders), session.ByTurn) {
			out.Holders = append(out.Holders, lockJSON(h))
		}
		out.HeldBy = &out.Holders[0]
		out.More, out.Waited = held.More, held.Waited.Seconds()
		out.Repository = r.Place.Where()
		if placed, ok := errors.AsType[session.HeldError](err); ok {
			out.Repository, out.LockName = placed.Place.Where(), events.LockName(placed.Place.Name)
			var at Flags // of another place than the command line's
			if placed.Place == r.Place {
				at = r.Flags
			}
			out.Summary = refusal(placed, at.Located("{repolock status}"))
			if h, ok := events.Stale(placed.Place.URL, held.Holders); ok {
				out.Staleness, out.TTLSeconds = events.NewStaleness(h), int64(h.TTL.Seconds())
			}
		}
	} else {
		out.Summary = session.Words(err, out.addUndone(cmp.Or(fault.Undone(err), r.undone(err))))
	}
	if out.Summary == out.Message {
		out.Summary = ""
	}
	return out
}

// DescribedError is an error that another process has described in JSON.
type DescribedError struct{ JSONError }

// Error returns the message of the process that described the error.
func (e DescribedError) Error() string { return e.Message }

// NewDescribedError returns the error that a keeper has described.
func NewDescribedError(description json.RawMessage) error {
	var e DescribedError
	if err := json.Unmarshal(description, &e.JSONError); err != nil {
		return fmt.Errorf("%w: %w", fault.KeeperFailed, err)
	}
	return e
}

// DescribeJSON returns the description of an error in JSON, for another process.
func DescribeJSON(r *Reporter, err error) json.RawMessage {
	raw, err := json.Marshal(NewJSONError(r, err))
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return raw
}

// addUndone puts the words of undone before the suggestion. If there is no suggestion, it adds them to the message,
// and returns the added text.
func (e *JSONError) addUndone(undone string) (added string) {
	switch {
	case undone == "":
	case e.Suggestion != "":
		e.Suggestion = undone + "; " + e.Suggestion
	default:
		added = "; " + undone
		e.Message += added
	}
	return added
}

// Words returns the message for people: the summary, or with verbose the message with all details.
func (e JSONError) Words(verbose bool) string {
	if e.Summary != "" && !verbose {
		return e.Summary
	}
	return e.Message
}

// state returns the state of a lock in JSON. The state of a lock is "acquiring" until its first refresh. It can be
// held before that, and no client can know whether it is.
func state(i replock.Info) string {
	if i.State == replock.StateAcquiring {
		return "acquiring_or_held"
	}
	return string(i.State)
}

// NewJSONLock returns a lock in JSON.
func NewJSONLock(l Lock) JSONLock {
	j := lockJSON(l.Info)
	j.Place, j.Older = l.Place, l.Older
	if l.Err != nil {
		j.BreakFailure = text.Error(l.Err)
	}
	return j
}

// MarshalLock is text.MarshalIndent of a lock in JSON.
func MarshalLock(l Lock, prefix, indent string) []byte {
	raw, err := text.MarshalIndent(NewJSONLock(l), prefix, indent)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return raw
}

func lockJSON(i replock.Info) JSONLock {
	host, pid := process(i.Holder)
	if at := strings.LastIndex(host, " on "); at >= 0 { // as also.Lock describes the holder of another system's lock
		host = host[at+len(" on "):]
	}
	return JSONLock{
		Host: host, PID: pid,
		specified: events.Holder(i),
		Mode:      i.Mode.String(), Operation: i.Operation, Holder: i.Holder, ID: i.ID, State: state(i), User: i.User,
		Version: i.Version, Metadata: i.Metadata, Keys: i.Keys, Verdict: i.Verdict.String(), Status: Verdict(i), Why: i.Why,
		AcquiredAt: events.Instant(i.Acquired), ExpiresAt: events.Instant(i.Expires),
		TTLSeconds: i.TTL.Seconds(), AgeSeconds: i.Age.Seconds(), LeftSeconds: i.Left.Seconds(),
		StoreClock: i.StoreClock, ProcessGone: i.ProcessGone,
	}
}
