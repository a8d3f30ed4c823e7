package main

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// jsonError is an error with --json, in the shape of the locking specification of
// tower-fleet (lock/v1, section 4.4). Fields are only ever added.
type jsonError struct {
	Error      string     `json:"error"`
	Message    string     `json:"message"`
	Summary    string     `json:"summary,omitempty"` // the message for people, if it is another one
	ExitCode   int        `json:"exit_code"`
	LockName   string     `json:"lock_name"`
	HeldBy     *jsonLock  `json:"held_by,omitempty"` // the first of Holders: a waiter only if there is no holder
	Holders    []jsonLock `json:"holders,omitempty"`
	More       int        `json:"more,omitempty"`
	Waited     float64    `json:"waited_seconds,omitempty"`
	Suggestion string     `json:"suggestion,omitempty"`
	Repository string     `json:"repository,omitempty"` // the repository of the lock, if it is held

	audit.Staleness       // of a lock that is stale, and stays; section 6.3
	TTLSeconds      int64 `json:"ttl_seconds,omitempty"` // of that lock
}

// jsonLock is a lock in JSON. Fields are only ever added.
type jsonLock struct {
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
	Status       string            `json:"status"` // the verdict in the table of status
	Why          string            `json:"why,omitempty"`
	AcquiredAt   *time.Time        `json:"acquired_at,omitempty"`
	ExpiresAt    *time.Time        `json:"expires_at,omitempty"`
	TTLSeconds   float64           `json:"ttl_seconds"`
	AgeSeconds   float64           `json:"age_seconds"`
	LeftSeconds  float64           `json:"left_seconds"`
	StoreClock   bool              `json:"store_clock"`
	ProcessGone  bool              `json:"process_gone"`
	BreakFailure string            `json:"error,omitempty"`
	Place        string            `json:"place,omitempty"` // of --also, or any if there are several

	specified // the same under the names of the specification
}

type specified = audit.Holder

func newJSONError(r *reporter, err error) jsonError {
	var told keeperError
	if errors.As(err, &told) {
		return told.jsonError
	}
	name, code, hint := r.describe(err)
	out := jsonError{Error: name, Message: text.Error(err), ExitCode: code, LockName: events.LockName(r.Name), Suggestion: hint}
	var held *replock.HeldError
	if errors.As(err, &held) {
		for _, h := range slices.SortedStableFunc(slices.Values(held.Holders), session.ByTurn) {
			out.Holders = append(out.Holders, newJSONLock(h))
		}
		out.HeldBy = &out.Holders[0]
		out.More, out.Waited = held.More, held.Waited.Seconds()
		out.Repository = r.place().Where()
		if placed, ok := errors.AsType[session.HeldError](err); ok {
			out.Repository, out.LockName = placed.Place.Where(), events.LockName(placed.Place.Name)
			out.Summary = refusal(placed)
			if h, ok := events.Stale(placed.Place.URL, held.Holders); ok {
				out.Staleness, out.TTLSeconds = events.NewStaleness(h), int64(h.TTL.Seconds())
			}
		}
	} else {
		out.Summary = session.Words(err, out.addUndone(r.undoneBy(err)))
	}
	if out.Summary == out.Message {
		out.Summary = ""
	}
	return out
}

// addUndone adds what a failure has prevented to the suggestion, or to the message if there is
// none, and returns what it has added to the message.
func (e *jsonError) addUndone(undone string) (added string) {
	switch {
	case undone == "" || strings.HasPrefix(e.Suggestion, undone):
	case e.Suggestion != "":
		e.Suggestion = undone + "; " + e.Suggestion
	default:
		added = "; " + undone
		e.Message += added
	}
	return added
}

// words returns the message for people, with all details if they want them.
func (e jsonError) words(verbose bool) string {
	if e.Summary != "" && !verbose {
		return e.Summary
	}
	return e.Message
}

func newJSONLock(i replock.Info) jsonLock {
	host, pid := process(i.Holder)
	if at := strings.LastIndex(host, " on "); at >= 0 { // also.Lock describes another system's holder so
		host = host[at+len(" on "):]
	}
	return jsonLock{
		Host: host, PID: pid,
		specified: events.Holder(i),
		Mode:      i.Mode.String(), Operation: i.Operation, Holder: i.Holder, ID: i.ID, State: string(i.State), User: i.User,
		Version: i.Version, Metadata: i.Metadata, Keys: i.Keys, Verdict: i.Verdict.String(), Status: verdict(i), Why: i.Why,
		AcquiredAt: events.Instant(i.Acquired), ExpiresAt: events.Instant(i.Expires),
		TTLSeconds: i.TTL.Seconds(), AgeSeconds: i.Age.Seconds(), LeftSeconds: i.Left.Seconds(),
		StoreClock: i.StoreClock, ProcessGone: i.ProcessGone,
	}
}
