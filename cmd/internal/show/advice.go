package show

import (
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

// Describe returns the name of an error in JSON, its exit code, and what to do next.
func (r *Reporter) Describe(err error) (name string, code int, advice string) {
	if held, ok := errors.AsType[session.HeldError](err); ok {
		name = audit.Blocked
		if _, stale := events.Stale(held.Place.URL, held.Holders); stale {
			name = audit.Stale
		}
		return name, held.ExitCode, r.heldHint(held)
	}
	return fault.Of(err).Name, fault.Exit(err), r.Flags.Located(r.Advice(err))
}

// Advice returns what to do about an error, but not about a held lock.
func (r *Reporter) Advice(err error) string {
	switch advice := fault.Advice(err); advice {
	case fault.SeeHelp:
		return strings.TrimSpace("see repolock help " + r.Command)
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
func (r *Reporter) unknownHint(err error) string {
	var all []string
	if _, ok := errors.AsType[*store.Error](err); ok {
		all = append(all, "try again")
		if r.Command != "doctor" {
			all = append(all, "{repolock doctor} examines the store")
		}
	}
	if !r.Verbose && !r.JSON { // an object has all details
		all = append(all, "-v shows all details")
	}
	return strings.Join(all, "; ")
}

// Flags are global flags of a command line that have a value, by their names, for commands in hints. Besides "repo",
// "name" and "config" they can be "also".
type Flags map[string]string

// Located returns a hint whose commands name the repository and the lock as the command line does, so that they can be
// run as they are.
func (f Flags) Located(hint string) string {
	note := ""
	located := fault.Expand(hint, func(name string) string {
		note = f.note()
		return f.Command(name)
	})
	return located + note
}

// Command returns the beginning of a command line of repolock at the same place. It writes the word URL instead of a
// URL that can be secret.
func (f Flags) Command(name string) string {
	repo := f["repo"]
	if f.note() != "" {
		repo = "URL"
	}
	words := "repolock "
	for _, flag := range []struct{ short, long, value string }{{"--config", "--config", f["config"]}, {"-r", "--repo", repo}, {"--name", "--name", f["name"]}} {
		switch {
		case strings.HasPrefix(flag.value, "-"): // after a space it would be a flag
			words += flag.long + "=" + text.Word(flag.value) + " "
		case flag.value != "":
			words += flag.short + " " + text.Word(flag.value) + " "
		}
	}
	words += name
	if url := f["also"]; url != "" && slices.Contains([]string{"status", "break-lock", "doctor"}, name) {
		words += " --also " + text.Word(url)
	}
	return words
}

// note tells the reader of a hint which flag its word URL stands for. It is "" if Command writes the repository itself.
func (f Flags) note() string {
	if repo := f["repo"]; repo != session.Redact(repo) {
		return " (URL is your --repo)"
	}
	return ""
}

// unreachableHint returns what to do about a store that doesn't answer.
func (r *Reporter) unreachableHint(err error) string {
	if r.Command == "doctor" {
		return "check the address, the network and the proxy, if there is one"
	}
	if r.Command == "backup" && errors.Is(err, fault.Unanswered) {
		return "{repolock doctor} examines the store; a backup with --if-unreachable run goes on without a lock"
	}
	return "{repolock doctor} examines the store"
}

// Words for work that an error has prevented.
const (
	nothingRun = "nothing was run"
	noneBroken = "no lock was broken"
)

// AcquiresLock reports whether the command acquires a lock.
func (r *Reporter) AcquiresLock() bool {
	return slices.Contains([]string{"backup", "restore", "prune", "run", "acquire", "programs"}, r.Command)
}

// undone returns the words for the work that an error has prevented, or "". break-lock can fail after it has
// deleted a lock.
func (r *Reporter) undone(err error) string {
	switch command := r.Command; {
	case !fault.Of(err).Nothing:
		return ""
	case command == "acquire":
		return "no lock was taken"
	case r.AcquiresLock():
		return nothingRun
	case command == "break-lock" && errors.Is(err, fault.Early):
		return noneBroken
	default:
		return ""
	}
}

// heldHint returns what to do about a lock that is held.
func (r *Reporter) heldHint(e session.HeldError) string {
	if e.Own {
		return "it is the lock that this very command runs under, or a waiter for that lock: it stays until the command ends; use another lock, or none"
	}
	if e.Place.Repo == "" && e.Place.URL != "" {
		return also.Hint(e.Place.URL, e.Holders[0])
	}
	return r.Flags.Located(hintOf(e))
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
		return "{repolock break-lock} --dead removes the locks of processes that are gone; otherwise they expire by themselves"
	}
	for _, h := range e.Holders {
		switch h.Verdict {
		case replock.Unreadable:
			return "if no operation is running, run {repolock break-lock}"
		case replock.Doubtful:
			return fmt.Sprintf("it has expired by one clock only: if its holder no longer runs, {repolock break-lock} --stale deletes it; --wait %s watches it for its whole ttl, and then ignores it",
				FlagDuration((h.TTL + time.Minute).Truncate(time.Second)))
		}
	}
	if e.Waited > 0 {
		return "{repolock status} --watch shows when it is free; a crashed holder's lock expires by itself"
	}
	who := "it is"
	if len(e.Holders)+e.More > 1 {
		who = "they are"
	}
	return "--wait 1h waits until " + who + " done; a crashed holder's lock expires by itself"
}

// FlagDuration formats a duration as people write the value of a flag: 24h, 1h30m.
func FlagDuration(d time.Duration) string {
	words := d.String()
	if strings.HasSuffix(words, "m0s") {
		words = strings.TrimSuffix(words, "0s")
	}
	if strings.HasSuffix(words, "h0m") {
		words = strings.TrimSuffix(words, "0m")
	}
	return words
}
