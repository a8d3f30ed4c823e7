package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

const exitCodes = `Exit codes: the command's own; 128+n if signal n ended it;
  1    break-lock: no such lock, or the answer was no; status: a lock is older
  64   wrong usage
  66   the repository doesn't exist: no such bucket or directory
  69   no answer from the store or a script's keeper
  70   torture could not decide
  74   the store gave a wrong answer, or is full; or another failure
  75   another holder has the lock (--held-exit-code changes it)
  77   no permission
  78   the store is unfit, or configured wrongly
  79   the lock was lost, even if the command exited 0; or its keeper is gone
  126  the command can't be executed
  127  the command wasn't found`

// describe returns the name of an error in JSON, its exit code, and what to do next.
func (r *reporter) describe(err error) (name string, code int, advice string) {
	if held, ok := errors.AsType[session.HeldError](err); ok {
		name = audit.Blocked
		if _, stale := events.Stale(held.Place.URL, held.Holders); stale {
			name = audit.Stale
		}
		return name, held.ExitCode, r.heldHint(held)
	}
	return fault.Of(err).Name, fault.Exit(err), r.located(r.advice(err))
}

// advice returns what to do about an error, but not about a held lock.
func (r *reporter) advice(err error) string {
	switch advice := fault.Advice(err); advice {
	case fault.SeeHelp:
		return strings.TrimSpace("see repolock help " + r.command)
	case fault.SeeDoctor:
		return r.unreachableHint(err)
	case fault.SeeDetails:
		return r.unknownHint(err)
	case fault.SeeNothing:
		return ""
	default:
		return advice
	}
}

// unknownHint returns what to do about a failure without a class.
func (r *reporter) unknownHint(err error) string {
	var all []string
	if _, ok := errors.AsType[*store.Error](err); ok {
		all = append(all, "try again")
		if r.command != "doctor" {
			all = append(all, "repolock doctor examines the store")
		}
	}
	if !r.Verb && !r.JSON { // an object has all details
		all = append(all, "-v shows all details")
	}
	return strings.Join(all, "; ")
}

// located adds the repository and the lock's name, as the command line has them, to the commands in a hint, so that
// the commands can be run as they are. A URL that can be secret isn't repeated: URL stands for it.
func (g global) located(hint string) string {
	flags, repo, also, after := "", g.Typed["repo"], "", ""
	if repo != session.Redact(repo) {
		repo, after = "URL", " (URL is your --repo)"
	}
	for _, f := range []struct{ short, long, value string }{{"--config", "--config", g.Typed["config"]}, {"-r", "--repo", repo}, {"--name", "--name", g.Typed["name"]}} {
		switch {
		case strings.HasPrefix(f.value, "-"): // after a space it would be a flag
			flags += f.long + "=" + text.Word(f.value) + " "
		case f.value != "":
			flags += f.short + " " + text.Word(f.value) + " "
		}
	}
	if url := g.Typed["also"]; url != "" {
		also = " --also " + text.Word(url)
	}
	plain := hint
	for _, command := range []string{"status", "break-lock", "doctor"} {
		hint = strings.ReplaceAll(hint, "repolock "+command, "repolock "+flags+command+also)
	}
	for _, command := range []string{"backup", "restore", "prune", "run"} {
		hint = strings.ReplaceAll(hint, "repolock "+command+" ", "repolock "+flags+command+" ")
	}
	if hint != plain {
		hint += after
	}
	return hint
}

// unreachableHint returns what to do about a store that doesn't answer.
func (r *reporter) unreachableHint(err error) string {
	if r.command == "doctor" {
		return "check the address, the network and the proxy, if there is one"
	}
	if r.command == "backup" && errors.Is(err, fault.Unanswered) {
		return "repolock doctor examines the store; a backup with --if-unreachable run goes on without a lock"
	}
	return "repolock doctor examines the store"
}

// Words for work that an error has prevented.
const (
	nothingRun = "nothing was run"
	noneBroken = "no lock was broken"
)

// locks reports whether the command acquires a lock.
func (r *reporter) locks() bool {
	return slices.Contains([]string{"backup", "restore", "prune", "run", "acquire"}, r.command)
}

// undone returns the words for the work that an error has prevented, or "". break-lock can fail after it has
// deleted a lock.
func (r *reporter) undone(err error) string {
	switch command := r.command; {
	case !fault.Of(err).Nothing:
		return ""
	case command == "acquire":
		return "no lock was taken"
	case r.locks():
		return nothingRun
	case command == "break-lock" && errors.Is(err, fault.Early):
		return noneBroken
	default:
		return ""
	}
}

// heldHint returns what to do about a lock that is held.
func (r *reporter) heldHint(e session.HeldError) string {
	if e.Own {
		return "it is the lock that this very command runs under, or a waiter for that lock: it stays until the command ends; use another lock, or none"
	}
	if e.Place.Repo == "" && e.Place.URL != "" {
		return also.Hint(e.Place.URL, e.Holders[0])
	}
	return r.located(hintOf(e))
}

// hintOf is heldHint for a repository's lock.
func hintOf(e session.HeldError) string {
	gone := 0
	for _, h := range e.Holders {
		if h.ProcessGone {
			gone++
		}
	}
	if gone == len(e.Holders) {
		return "repolock break-lock --dead removes the locks of processes that are gone; otherwise they expire by themselves"
	}
	for _, h := range e.Holders {
		switch h.Verdict {
		case replock.Unreadable:
			return "if no operation is running, run repolock break-lock"
		case replock.Doubtful:
			return fmt.Sprintf("it has expired by one clock only: if its holder no longer runs, repolock break-lock --stale deletes it; --wait %s watches it for its whole ttl, and then ignores it",
				plainly((h.TTL + time.Minute).Truncate(time.Second)))
		}
	}
	if e.Waited > 0 {
		return "repolock status --watch shows when it is free; a crashed holder's lock expires by itself"
	}
	who := "it is"
	if len(e.Holders)+e.More > 1 {
		who = "they are"
	}
	return "--wait 1h waits until " + who + " done; a crashed holder's lock expires by itself"
}

// plainly formats a duration as people write the value of a flag: 24h, 1h30m.
func plainly(d time.Duration) string {
	words := d.String()
	if strings.HasSuffix(words, "m0s") {
		words = strings.TrimSuffix(words, "0s")
	}
	if strings.HasSuffix(words, "h0m") {
		words = strings.TrimSuffix(words, "0m")
	}
	return words
}

// jsonError is an error in JSON, as the locking specification of tower-fleet defines it (lock/v1, section
// 4.4). Fields are only ever added.
type jsonError struct {
	Error      string     `json:"error"`
	Message    string     `json:"message"`
	Summary    string     `json:"summary,omitempty"` // the message for people, if it differs
	ExitCode   int        `json:"exit_code"`
	LockName   string     `json:"lock_name"`
	HeldBy     *jsonLock  `json:"held_by,omitempty"` // Holders[0], a waiter only if there is no holder
	Holders    []jsonLock `json:"holders,omitempty"`
	More       int        `json:"more,omitempty"`
	Waited     float64    `json:"waited_seconds,omitempty"`
	Suggestion string     `json:"suggestion,omitempty"`
	Repository string     `json:"repository,omitempty"` // the repository of the lock, if it is held

	audit.Staleness       // of a stale lock that blocks us; section 6.3
	TTLSeconds      int64 `json:"ttl_seconds,omitempty"` // of the stale lock
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
			if placed.Place == r.place() {
				out.Summary = r.located(out.Summary)
			}
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

// addUndone puts the words of undone before the suggestion. If there is no suggestion, it adds it to the message,
// and returns the added words.
func (e *jsonError) addUndone(undone string) (added string) {
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

// words returns the message for people: the summary, or with verbose the message with all details.
func (e jsonError) words(verbose bool) string {
	if e.Summary != "" && !verbose {
		return e.Summary
	}
	return e.Message
}

// state returns the state of a lock in JSON. A lock that wasn't refreshed yet calls itself "acquiring", although it can
// be held for a while already: no client can know which.
func state(i replock.Info) string {
	if i.State == replock.StateAcquiring {
		return "acquiring_or_held"
	}
	return string(i.State)
}

func newJSONFound(l found) jsonLock {
	j := newJSONLock(l.Info)
	j.Place, j.Older = l.place, l.older
	if l.Err != nil {
		j.BreakFailure = text.Error(l.Err)
	}
	return j
}

func newJSONLock(i replock.Info) jsonLock {
	host, pid := process(i.Holder)
	if at := strings.LastIndex(host, " on "); at >= 0 { // as also.Lock describes the holder of another system's lock
		host = host[at+len(" on "):]
	}
	return jsonLock{
		Host: host, PID: pid,
		specified: events.Holder(i),
		Mode:      i.Mode.String(), Operation: i.Operation, Holder: i.Holder, ID: i.ID, State: state(i), User: i.User,
		Version: i.Version, Metadata: i.Metadata, Keys: i.Keys, Verdict: i.Verdict.String(), Status: verdict(i), Why: i.Why,
		AcquiredAt: events.Instant(i.Acquired), ExpiresAt: events.Instant(i.Expires),
		TTLSeconds: i.TTL.Seconds(), AgeSeconds: i.Age.Seconds(), LeftSeconds: i.Left.Seconds(),
		StoreClock: i.StoreClock, ProcessGone: i.ProcessGone,
	}
}
