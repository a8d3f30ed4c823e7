package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/plain"
	"github.com/repolock/repolock/replock"
)

// reporter is how repolock speaks: results to stdout, all else to stderr, so
// that it doesn't get into the output of the command. It may be used
// concurrently.
type reporter struct {
	global
	mu             sync.Mutex
	stdout, stderr io.Writer
	terminal       func() bool // stderr is one, and ours
	shown          string      // the live line
}

// say prints a line on stderr, unless --quiet, or --json, which keeps stderr for
// one object.
func (r *reporter) say(format string, args ...any) {
	if !r.Quiet && !r.JSON {
		r.line("", fmt.Sprintf(format, args...))
	}
}

func (r *reporter) line(kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	shown, was := r.shown, r.erased()
	if was != "" {
		r.shown = shown
	}
	fmt.Fprintf(r.stderr, "%srepolock: %s%s\n%s", was, kind, escape(text), r.shown)
}

// fail prints an error and returns its exit code.
func (r *reporter) fail(err error) int {
	out := newJSONError(r, err)
	if r.JSON {
		r.object(out)
		return out.ExitCode
	}
	r.line("error: ", out.Message)
	if out.Suggestion != "" {
		r.line("hint: ", out.Suggestion)
	}
	return out.ExitCode
}

func newJSONError(r *reporter, err error) jsonError {
	var told keeperError
	if errors.As(err, &told) {
		return told.jsonError
	}
	name, code, hint := describe(err)
	out := jsonError{Error: name, Message: oneLine(err), ExitCode: code, LockName: lockName(r.Name), Suggestion: hint}
	var held *replock.HeldError
	if errors.As(err, &held) {
		for _, h := range held.Holders {
			out.Holders = append(out.Holders, newJSONLock(h))
		}
		out.HeldBy = &out.Holders[0]
		out.More, out.Waited = held.More, held.Waited.Seconds()
		out.Repository = r.where()
	}
	return out
}

// event tells what happens to the lock.
func (r *reporter) event(e replock.Event) {
	switch e.Kind {
	case replock.EventWatching:
		for _, h := range e.Holders {
			r.say("waiting up to %v: %s", h.TTL, h)
		}
	case replock.EventReaped:
		for _, h := range e.Holders {
			r.say("removed a stale lock: %s", h)
		}
	case replock.EventRefreshFailed:
		r.say("refreshing the lock failed (%d of 3; it is lost in %v): %s", e.Failures, e.Left.Round(time.Second), oneLine(e.Err))
	case replock.EventReleaseFailed:
		r.say("warning: a lock is left to expire: %s", oneLine(e.Err))
	default:
		if r.Verb {
			r.say("%s: %s lock %s, key %s", e.Kind, e.Mode, e.ID, e.Key)
		}
	}
}

// jsonError is an error with --json, in the shape of the locking specification of
// tower-fleet (lock/v1, section 4.4). Fields are only ever added.
type jsonError struct {
	Error      string     `json:"error"`
	Message    string     `json:"message"`
	ExitCode   int        `json:"exit_code"`
	LockName   string     `json:"lock_name"`
	HeldBy     *jsonLock  `json:"held_by,omitempty"` // the first of them
	Holders    []jsonLock `json:"holders,omitempty"`
	More       int        `json:"more,omitempty"`
	Waited     float64    `json:"waited_seconds,omitempty"`
	Suggestion string     `json:"suggestion,omitempty"`
	Repository string     `json:"repository,omitempty"` // where it looked, of one who found the lock held
}

// jsonLock is a lock in JSON. Fields are only ever added.
type jsonLock struct {
	Mode         string            `json:"mode"`
	Operation    string            `json:"operation"`
	Holder       string            `json:"holder"`
	ID           string            `json:"id,omitempty"`
	State        string            `json:"state,omitempty"`
	User         string            `json:"user,omitempty"`
	Version      string            `json:"version,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Keys         []string          `json:"keys"`
	Verdict      string            `json:"verdict"`
	Why          string            `json:"why,omitempty"`
	AcquiredAt   *time.Time        `json:"acquired_at,omitempty"`
	ExpiresAt    *time.Time        `json:"expires_at,omitempty"`
	TTLSeconds   float64           `json:"ttl_seconds"`
	AgeSeconds   float64           `json:"age_seconds"`
	LeftSeconds  float64           `json:"left_seconds"`
	StoreClock   bool              `json:"store_clock"`
	ProcessGone  bool              `json:"process_gone"`
	BreakFailure string            `json:"error,omitempty"`

	// The same in the words of the specification.
	RequestID       string     `json:"request_id,omitempty"`
	Actor           string     `json:"actor,omitempty"`
	Intent          string     `json:"intent,omitempty"`
	CreatedAt       *time.Time `json:"created_at,omitempty"`
	LastHeartbeatAt *time.Time `json:"last_heartbeat_at,omitempty"`
}

func newJSONLock(i replock.Info) jsonLock {
	when := func(t time.Time) *time.Time {
		if y := t.Year(); t.IsZero() || y < 0 || y > 9999 {
			return nil
		}
		t = t.UTC()
		return &t
	}
	heartbeat := i.ModTime
	if heartbeat.IsZero() && !i.Expires.IsZero() {
		heartbeat = i.Expires.Add(-i.TTL)
	}
	return jsonLock{
		RequestID: i.ID, Actor: i.User, Intent: i.Operation, CreatedAt: when(i.Acquired), LastHeartbeatAt: when(heartbeat),
		Mode: i.Mode.String(), Operation: i.Operation, Holder: i.Holder, ID: i.ID, State: i.State, User: i.User,
		Version: i.Version, Metadata: i.Metadata, Keys: i.Keys, Verdict: i.Verdict.String(), Why: i.Why,
		AcquiredAt: when(i.Acquired), ExpiresAt: when(i.Expires),
		TTLSeconds: i.TTL.Seconds(), AgeSeconds: i.Age.Seconds(), LeftSeconds: i.Left.Seconds(),
		StoreClock: i.StoreClock, ProcessGone: i.ProcessGone,
	}
}

// stamp is a time for people.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// shortStamp is one without its day, if that is today.
func shortStamp(t time.Time) string {
	today, _, _ := strings.Cut(stamp(clock.System{}.Now()), " ")
	return strings.TrimPrefix(stamp(t), today+" ")
}

// result prints a result as JSON on stdout.
func (r *reporter) result(v any) error { return printJSON(r.stdout, v) }

func printJSON(w io.Writer, v any) error {
	text, err := plain.MarshalIndent(v, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", text)
	}
	return err
}

// escape makes a text safe for a terminal: an error may quote the name of a file
// or a body.
func escape(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}
