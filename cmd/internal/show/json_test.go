package show

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/daemon"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// TestDescribe: a lock that was lost because its server was silent is lost, and a server that refused
// the lock has another code. If the credentials are wrong, or a file system is mounted read-only, the
// message recommends no permission. The command that makes room needs a lock itself, so the hint for a
// full store must name another way. The hint for a store that doesn't answer names --if-unreachable only where
// that helps.
func TestDescribe(t *testing.T) {
	lost := func(why error) error {
		lost := &replock.LostError{Mode: replock.Exclusive, Key: "redis://host", Reason: "it could not be renewed", Err: fmt.Errorf("no answer: %w", why)}
		return fmt.Errorf("%w (the command: killed)", lost)
	}
	silent := fmt.Errorf("h: %w", store.ErrUnreachable)
	for _, c := range []struct {
		command         string
		err             error
		name            string
		code            int
		hint, otherHint string // what the hint says, and what it doesn't
	}{
		{"", lost(locking.ErrUnreachable), "lock_lost", fault.ExitLost, "", "doctor"},
		{"", lost(locking.ErrPermission), "lock_lost", fault.ExitLost, "", "permission"},
		{"", lost(locking.ErrUnfit), "lock_lost", fault.ExitLost, "", "doctor"},
		{"", locking.ErrUnreachable, "store_unavailable", fault.ExitUnavailable, "", "doctor"},
		{"", store.ErrNotFound, "repository_not_found", fault.ExitNotThere, "must exist", "if-unreachable"},
		{"", locking.ErrPermission, "permission_denied", fault.ExitPermission, "", "locking needs"},
		{"", locking.ErrUnfit, "store_unfit", fault.ExitUnfit, "", "doctor"},
		{"", locking.ErrKey, "usage", fault.ExitUsage, "help", "doctor"},
		{"", store.ErrCredentials, "permission_denied", fault.ExitPermission, "credentials", "locking needs"},
		{"", store.ErrReadOnly, "permission_denied", fault.ExitPermission, "mount it writable", "locking needs"},
		{"", store.ErrPermission, "permission_denied", fault.ExitPermission, "locking needs to list", "mount"},
		{"", store.ErrFull, "store_full", fault.ExitFailed, "outside of the repository", "doctor"},
		{"", store.ErrFull, "store_full", fault.ExitFailed, "a prune can't free it", "doctor"},
		{"", daemon.ErrDir, "wrong_configuration", fault.ExitUnfit, "", "doctor"},
		{"", daemon.ErrGone, "keeper_gone", fault.ExitLost, "repolock -r REPOSITORY status shows whether it is held", "doctor"},
		{"", daemon.ErrSilent, "keeper_silent", fault.ExitUnavailable, "count it as lost", "doctor"},
		{"", errors.New("unknown"), "failed", fault.ExitFailed, "-v shows all details", "doctor"},
		{"", &store.Error{Op: "put", Err: errors.New("500")}, "failed", fault.ExitFailed, "try again; repolock doctor examines the store; -v", "unreachable"},
		{"doctor", &store.Error{Op: "put", Err: errors.New("500")}, "failed", fault.ExitFailed, "try again; -v", "doctor"},
		{"backup", session.NotAcquired(silent, false), "store_unavailable", fault.ExitUnavailable, "--if-unreachable run", "credentials"},
		{"backup", session.NotAcquired(silent, true), "store_unavailable", fault.ExitUnavailable, "repolock doctor", "--if-unreachable"}, // the store has answered before
		{"prune", session.NotAcquired(silent, false), "store_unavailable", fault.ExitUnavailable, "repolock doctor", "--if-unreachable"},
		{"doctor", silent, "store_unavailable", fault.ExitUnavailable, "", "doctor"},
		// The store has answered, but not this request: it isn't a reason to run without a lock.
		{"backup", session.NotAcquired(fault.As(fault.Late, context.DeadlineExceeded), false), "store_unavailable", fault.ExitUnavailable, "too slow", "if-unreachable"},
	} {
		name, code, hint := (&Reporter{Command: c.command}).Describe(fmt.Errorf("put: %w", c.err))
		assert.That(t, name == c.name && code == c.code && strings.Contains(hint, c.hint) && !strings.Contains(hint, c.otherHint),
			"%v: %s, exit code %d, hint %q", c.err, name, code, hint)
	}
	_, _, hint := (&Reporter{Options: Options{Verbose: true}}).Describe(errors.New("unknown"))
	assert.Equal(t, hint, "", "with -v")
}

// TestSaysWhatWasNotDone: a failure before the command says that the command wasn't run, or that no
// lock was taken. A lost lock, and a failure of another command, don't.
func TestSaysWhatWasNotDone(t *testing.T) {
	for command, undone := range map[string]string{"backup": "nothing was run", "prune": "nothing was run", "acquire": "no lock was taken", "status": "", "break-lock": ""} {
		for _, err := range []error{
			store.ErrUnreachable, store.ErrNoHost, store.ErrPermission, store.ErrNotFound, store.ErrConfig, store.ErrFull, fmt.Errorf("500"), session.Signalled(syscall.SIGINT),
		} {
			out := NewJSONError(&Reporter{Command: command}, session.NotAcquired(err, false))
			says := out.Words(false) + "; " + out.Suggestion
			n := strings.Count(says, undone)
			assert.That(t, (undone == "" || n == 1) && (undone != "" || !strings.Contains(says, "no lock was")), "%s, %v: %q", command, err, says)
		}
		out := NewJSONError(&Reporter{Command: command}, &replock.LostError{Key: "k", Reason: "it was deleted"})
		says := out.Words(false) + out.Suggestion
		assert.That(t, !strings.Contains(says, "nothing was") && !strings.Contains(says, "no lock was"), "%s: %q", command, says)
	}
}

// minuteOld returns a lock that was acquired a minute ago and refreshed now.
func minuteOld(mode replock.Mode, operation, holder, id string) replock.Info {
	acquired := time.Date(2026, 3, 7, 1, 0, 0, 0, time.UTC)
	refreshed := acquired.Add(time.Minute)
	return replock.Info{
		Mode: mode, Operation: operation, Holder: holder, User: "root", ID: id, Keys: []string{"index/lock.shared/20260307T010000.000000000Z-" + id},
		Acquired: acquired, Expires: refreshed.Add(time.Minute), TTL: time.Minute, ModTime: refreshed, Left: time.Minute, StoreClock: true, Verdict: replock.Live,
	}
}

// TestWaiterIsNoHolder: a refusal counts and names holders, and counts waiters separately. In JSON held_by is a
// holder if there is one, and status is the verdict in the table.
func TestWaiterIsNoHolder(t *testing.T) {
	waiter := minuteOld(replock.Exclusive, "prune", "web2 (pid 9)", "0a")
	waiter.State = replock.StateWaiting
	holder := minuteOld(replock.Shared, "backup", "web1 (pid 7)", "7b")
	refused := func(locks ...replock.Info) JSONError {
		return NewJSONError(&Reporter{}, session.HeldError{HeldError: &replock.HeldError{Mode: replock.Exclusive, Holders: locks}, Place: session.Place{Repo: "s3://b"}})
	}
	for want, out := range map[string]JSONError{
		"repository s3://b is locked by backup on web1 (pid 7, root) for 1m, last seen 0s ago; 1 other waits":             refused(waiter, holder),
		"repository s3://b is locked by 2: backup on web1 (pid 7, root) for 1m, last seen 0s ago; backup on web1 (pid 7,": refused(waiter, holder, waiter, holder),
		"repository s3://b is reserved for prune on web2 (pid 9, root), waiting for 1m, last seen 0s ago":                 refused(waiter),
	} {
		assert.That(t, strings.HasPrefix(out.Summary, want), "%q isn't %q", out.Summary, want)
		first := out.Holders[0]
		assert.That(t, out.HeldBy.ID == first.ID && (len(out.Holders) <= 1 || first.ID == "7b" && first.Status == "live"),
			"held by %+v, holders %+v", out.HeldBy, out.Holders)
		last := out.Holders[len(out.Holders)-1]
		assert.That(t, last.ID == "0a" && last.Status == "waiting" && last.Verdict == "live", "the waiter is %+v", last)
	}
	waiter.Verdict = replock.Stale
	assert.Equal(t, Verdict(waiter), "stale", "a waiter that is gone")
	waiter.Verdict = replock.Live
	holder.State = replock.StateAcquiring
	assert.Equal(t, refused(holder).HeldBy.State, "acquiring_or_held", "a lock that was never refreshed")
	says := refused(waiter, holder, waiter).Summary
	assert.That(t, strings.HasSuffix(says, "; 2 others wait"), "%q", says)
}

// TestNoMoreIsCountedThanIsKnown: an event of a wait has a bounded number of holders, and the number of further holders
// isn't known. The error of a refusal has that number.
func TestNoMoreIsCountedThanIsKnown(t *testing.T) {
	for _, c := range []struct {
		named, more  int
		begins, ends string
	}{
		{1, 0, "backup on web1", "web1"},
		{3, 0, "3: ", "web1"},
		{15, 0, "15: ", "; … 12 more: repolock status"},
		{16, 0, "16 or more: ", "; … more: repolock status"},
		{16, 14, "30: ", "; … 27 more: repolock status"},
	} {
		s := holders(slices.Repeat([]replock.Info{{Operation: "backup", Holder: "web1"}}, c.named), c.more, 0, "repolock status")
		assert.That(t, strings.HasPrefix(s, c.begins) && strings.HasSuffix(s, c.ends), "%d named and %d more: %s", c.named, c.more, s)
	}
}

// TestHoldersAreNotExpanded: the text of a holder can look like a command that advice expands, and stays as it is.
func TestHoldersAreNotExpanded(t *testing.T) {
	held := session.HeldError{HeldError: &replock.HeldError{Holders: slices.Repeat([]replock.Info{{Operation: "{repolock zz", Holder: "web1}"}}, maxHolders+1)}}
	s := refusal(held, "repolock -r x status")
	assert.That(t, strings.Contains(s, "{repolock zz on web1}") && strings.HasSuffix(s, "more: repolock -r x status"), "%s", s)
}
