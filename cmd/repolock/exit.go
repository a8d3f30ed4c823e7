package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/child"
	"github.com/repolock/repolock/internal/keeper"
	"github.com/repolock/repolock/internal/torture"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// Exit codes: those of sysexits(3) where there is a fitting one. A wrapped
// command's own code is passed on.
const (
	exitAborted     = 1   // the question was answered with no, or the lock to be broken isn't there
	exitUsage       = 64  // EX_USAGE
	exitUnavailable = 69  // EX_UNAVAILABLE
	exitUnjudged    = 70  // EX_SOFTWARE: torture can't tell
	exitFailed      = 74  // EX_IOERR
	exitHeld        = 75  // EX_TEMPFAIL; --held-exit-code changes it
	exitPermission  = 77  // EX_NOPERM
	exitUnfit       = 78  // EX_CONFIG
	exitLost        = 79  // none: the next free one
	exitNotExec     = 126 // as in the shell
	exitNotFound    = 127 // as in the shell
	exitSignal      = 128 // + n, as in the shell
)

const exitCodes = `Exit codes: the command's own; 128+n if signal n ended it;
  64   wrong usage
  69   the store can't be reached
  70   torture found nothing out
  74   the store answered, and not as it should, or is full; or something else failed
  75   the lock is held by somebody else (--held-exit-code changes it)
  77   no permission
  78   the store is unfit, or configured wrongly
  79   the lock was lost; outranks the command's 0; or its keeper is gone
  126  the command can't be executed
  127  the command wasn't found`

// usageError is a wrong command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// signalled is what ended repolock before its command was started.
type signalled struct{ signal syscall.Signal }

func (e signalled) Error() string { return e.signal.String() }

// heldError is a lock that is held, with the exit code that was asked for.
type heldError struct {
	*replock.HeldError
	code   int
	nested bool // see global.ownOuter
	looked string
}

func (e heldError) Error() string { return e.HeldError.Error() + "; " + e.looked }

func (e heldError) Unwrap() error { return e.HeldError }

// describe gives an error its name in JSON, its exit code, and what to do next.
func describe(err error) (name string, code int, hint string) {
	var (
		usage  usageError
		signal signalled
		held   heldError
		nobody *torture.NobodyError
		file   fileError
		told   keeperError
		noLock noLockError
	)
	switch {
	case errors.As(err, &told):
		return told.jsonError.Error, told.ExitCode, told.Suggestion
	case errors.As(err, &signal):
		return "interrupted", exitSignal + int(signal.signal), ""
	case errors.As(err, &file):
		return "wrong_configuration", exitUnfit, ""
	case errors.As(err, &usage):
		return "usage", exitUsage, "see repolock --help"
	case errors.As(err, &noLock):
		return "no_such_lock", exitAborted, "repolock status lists the ids"
	case errors.As(err, &held):
		return "lock_blocked", held.code, heldHint(held)
	case errors.As(err, &nobody):
		if nobody.Code <= 0 || nobody.Code >= exitSignal {
			return "torture_failed", exitUnavailable, ""
		}
		return "torture_failed", nobody.Code, ""
	case errors.Is(err, torture.ErrUnjudged):
		return "torture_unjudged", exitUnjudged, ""
	case errors.Is(err, replock.ErrLost), errors.Is(err, child.ErrExpired), errors.Is(err, child.ErrParted):
		return "lock_lost", exitLost, "whether the operation was completed is for you to check"
	case errors.Is(err, keeper.ErrGone), errors.Is(err, replock.ErrReleased):
		return "keeper_gone", exitLost, "if the script still runs, call acquire with --for-pid $$; whether the operation was completed is for you to check"
	case errors.Is(err, keeper.ErrSilent):
		return "keeper_silent", exitUnavailable, "whether the lock is held isn't known: count it as lost"
	case errors.Is(err, errKeeperFailed), errors.Is(err, errOwnerEnded):
		return "keeper_failed", exitUnavailable, ""
	case errors.Is(err, child.ErrNotFound):
		return "command_not_found", exitNotFound, ""
	case errors.Is(err, child.ErrNotExecutable):
		return "command_not_executable", exitNotExec, ""
	case errors.Is(err, store.ErrURL):
		return "usage", exitUsage, "see repolock --help"
	case errors.Is(err, replock.ErrSlow):
		return "store_unfit", exitUnfit, "--ttl sets the ttl; repolock doctor measures the store"
	case errors.Is(err, store.ErrCredentials):
		return "permission_denied", exitPermission, "are these the credentials of this server, all of them, and still valid?"
	case errors.Is(err, store.ErrPermission):
		return "permission_denied", exitPermission, "locking needs to list, read, write and delete below " + replock.DefaultPrefix + " in the repository"
	case errors.Is(err, store.ErrConfig), errors.Is(err, keeper.ErrDir):
		return "wrong_configuration", exitUnfit, ""
	case errors.Is(err, replock.ErrFence), errors.Is(err, store.ErrConditionUnsupported):
		return "store_unfit", exitUnfit, ""
	case errors.Is(err, store.ErrListing):
		return "store_unfit", exitUnfit, "whether anybody holds a lock can't be known there; repolock doctor lists again, and a cache or gateway in between may be to blame"
	case errors.Is(err, store.ErrIrregular):
		return "store_unfit", exitUnfit, "nothing was locked: what is in the place of a folder of locks isn't one; if no operation is running, remove it"
	case errors.Is(err, store.ErrNotFound):
		return "store_unavailable", exitUnavailable, "the repository must exist (a bucket, or a directory whose disk is mounted); repolock doesn't create it"
	case errors.Is(err, store.ErrNoHost):
		return "store_unavailable", exitUnavailable, "is the endpoint's name right, and this machine on the network that knows it?"
	case errors.Is(err, store.ErrUnreachable):
		return "store_unavailable", exitUnavailable, ""
	case errors.Is(err, store.ErrFull):
		return "store_full", exitFailed, "a lock is an object of some 700 bytes: free that much outside of the repository, or raise the quota; a prune can't free it before it has its lock"
	default:
		// What nobody thought of isn't "unreachable": a command may be run without its
		// lock for that.
		return "failed", exitFailed, ""
	}
}

func heldHint(e heldError) string {
	if e.nested {
		return "it is the lock that this very command runs under, or waits for that: it can't be had before the command ends; use another one (--name), or none"
	}
	gone := 0
	for _, h := range e.Holders {
		switch h.Verdict {
		case replock.Unreadable:
			return "if no operation is running, run repolock break-lock"
		case replock.Doubtful:
			return fmt.Sprintf("one clock says that it has expired: if its holder no longer runs, repolock break-lock --stale deletes it; --wait %s watches it for its whole ttl, and then passes it",
				plainly(h.TTL+time.Minute))
		}
		if h.ProcessGone {
			gone++
		}
	}
	if gone == len(e.Holders) {
		return "repolock break-lock --dead removes the locks of processes that are gone; otherwise they expire by themselves"
	}
	return "wait until they are done, as with --wait; a crashed holder's lock expires by itself"
}

// plainly is a duration as it is given to a flag: 24h1m.
func plainly(d time.Duration) string {
	s := strings.TrimSuffix(d.Truncate(time.Second).String(), "m0s")
	if s != d.Truncate(time.Second).String() {
		s += "m"
	}
	return s
}

// maxMessage is where an error is cut: it may quote what was given to us.
const maxMessage = 4096

// oneLine makes one line of an error that joins several.
func oneLine(err error) string {
	s := escape(strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}
