package main

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
	"github.com/repolock/repolock/internal/daemon"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/torture"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/towerfleet"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// Exit codes: those of sysexits(3) if one fits. A wrapped command's own code is passed on.
const (
	exitAborted     = 1   // the user answered no, or the lock to break doesn't exist
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
  1    break-lock: there is no such lock, or the answer was no
  64   wrong usage
  69   no answer from the store or a script's keeper, or no such repository
  70   torture could not decide
  74   the store answered, and not as it should, or is full; or another failure
  75   another holder has the lock (--held-exit-code changes it)
  77   no permission
  78   the store is unfit, or configured wrongly
  79   the lock was lost; outranks the command's 0; or its keeper is gone
  126  the command can't be executed
  127  the command wasn't found`

// usageError is returned for a wrong command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// describe returns the name of an error in JSON, its exit code, and what to do next.
func describe(err error) (name string, code int, hint string) {
	var (
		usage     usageError
		signalled session.SignalError
		held      session.HeldError
		noLock    *torture.NotAcquiredError
		file      fileError
		noSuch    noLockError
		noURL     also.URLError
		hinted    hintedError
	)
	switch {
	case errors.As(err, &signalled):
		return "interrupted", exitSignal + int(signalled.Signal), ""
	case errors.As(err, &file):
		return "wrong_configuration", exitUnfit, "; correct the file, or name another with --config"
	case errors.As(err, &hinted):
		name, code, _ = describe(hinted.error)
		return name, code, hinted.hint
	case errors.As(err, &noURL):
		return "usage", exitUsage, urlHint
	case errors.As(err, &usage):
		return "usage", exitUsage, usageHint
	case errors.As(err, &noSuch):
		return "no_such_lock", exitAborted, "repolock status lists the ids"
	case errors.As(err, &held):
		name = audit.Blocked
		if _, stale := events.Stale(held.Place.URL, held.Holders); stale {
			name = audit.Stale
		}
		return name, held.ExitCode, heldHint(held)
	case errors.As(err, &noLock):
		if noLock.Code <= 0 || noLock.Code >= exitSignal {
			return "torture_failed", exitUnavailable, ""
		}
		return "torture_failed", noLock.Code, ""
	}
	for _, d := range descriptions {
		if slices.ContainsFunc(d.errs, func(known error) bool { return errors.Is(err, known) }) {
			return d.name, d.code, d.hint
		}
	}
	// An unknown error must not be "unreachable": a command can run without its lock for that.
	return "failed", exitFailed, ""
}

const urlHint = "; see repolock help urls"

// usageHint stands for what usageHint of a reporter returns.
const usageHint = "see the help"

// usageHint says where the help is.
func (r *reporter) usageHint() string {
	return "; " + strings.TrimSpace("see repolock help "+r.command)
}

// noneBroken is undone of break-lock. It is true of a wrong command line; another failure can come
// after a deletion.
const noneBroken = "no lock was broken"

// unreachableHint stands for what unreachableHint of a reporter returns.
const unreachableHint = "see why"

// unreachableHint says what to do about a store that doesn't answer.
func (r *reporter) unreachableHint(err error) string {
	if r.command == "doctor" {
		return ""
	}
	not, ok := errors.AsType[session.NotAcquiredError](err)
	if r.command == "backup" && ok && !not.Answered {
		return "repolock doctor looks at the store; a backup with --if-unreachable run goes on without a lock"
	}
	return "repolock doctor looks at the store"
}

// nothingRun is undone of the commands that run another one.
const nothingRun = "nothing was run"

// undone says what an error has prevented.
func (r *reporter) undone() string {
	switch r.command {
	case "backup", "restore", "prune", "run":
		return nothingRun
	case "acquire":
		return "no lock was taken"
	case "break-lock":
		return noneBroken
	default:
		return ""
	}
}

// procHint says how to let Linux name our executable.
const procHint = "if /proc isn't mounted, as in a new chroot, mount it: mount -t proc proc /proc"

// descriptions are what describe returns for errors. The first that fits counts.
var descriptions = []struct {
	errs []error
	name string
	code int
	hint string
}{
	{[]error{errDeclined}, "declined", exitAborted, ""},
	{[]error{session.ErrUnknownRequest}, "usage", exitUsage, usageHint},
	{[]error{torture.ErrUnjudged}, "torture_unjudged", exitUnjudged, ""},
	{[]error{towerfleet.ErrLive}, "lock_live", exitHeld, "wait until it is done; it is stale when its ttl is over"},
	{[]error{locking.ErrKey}, "usage", exitUsage, usageHint},
	{[]error{replock.ErrLost, procgroup.ErrExpired, procgroup.ErrParted}, "lock_lost", exitLost, "check whether the operation was completed"},
	{[]error{locking.ErrUnreachable}, "store_unavailable", exitUnavailable, ""},
	{[]error{locking.ErrPermission}, "permission_denied", exitPermission, ""},
	{[]error{locking.ErrUnfit}, "store_unfit", exitUnfit, ""},
	{[]error{daemon.ErrGone, replock.ErrReleased}, "keeper_gone", exitLost, "repolock status shows whether it is held; if the script still runs, call acquire with --for-pid $$; check whether the operation was completed"},
	{[]error{daemon.ErrSilent}, "keeper_silent", exitUnavailable, "whether the lock is held isn't known: count it as lost"},
	{[]error{procgroup.ErrNoExecutable}, "wrong_configuration", exitUnfit, procHint},
	{[]error{errKeeperFailed, session.ErrOwnerEnded}, "keeper_failed", exitUnavailable, ""},
	{[]error{procgroup.ErrNotFound}, "command_not_found", exitNotFound, ""},
	{[]error{procgroup.ErrNotExecutable}, "command_not_executable", exitNotExec, ""},
	{[]error{store.ErrURL}, "usage", exitUsage, urlHint},
	{[]error{replock.ErrSlow}, "store_unfit", exitUnfit, "--ttl sets the ttl; repolock doctor measures the store"},
	{[]error{store.ErrCredentials}, "permission_denied", exitPermission, "are these the credentials of this server, all of them, and still valid?"},
	{[]error{store.ErrReadOnly}, "permission_denied", exitPermission, "mount it writable; after an error of the disk, the kernel makes a file system read-only by itself"},
	{[]error{store.ErrPermission}, "permission_denied", exitPermission, "locking needs to list, read and write below " + replock.DefaultPrefix + " in the repository, and should be able to delete"},
	{[]error{store.ErrConfig, daemon.ErrDir}, "wrong_configuration", exitUnfit, ""},
	{[]error{replock.ErrFence, store.ErrConditionUnsupported}, "store_unfit", exitUnfit, ""},
	{[]error{store.ErrListing}, "store_unfit", exitUnfit, "whether a lock is held can't be known there; repolock doctor lists again, and a cache or gateway in between can be to blame"},
	{[]error{store.ErrIrregular}, "store_unfit", exitUnfit, "what is in the place of a folder of locks isn't one; if no operation is running, remove it"},
	{[]error{store.ErrNotFound}, "store_unavailable", exitUnavailable, "the repository must exist (a bucket, or a directory whose disk is mounted); repolock doesn't create it"},
	{[]error{store.ErrNoHost}, "store_unavailable", exitUnavailable, "is the endpoint's name right, and this machine on the network that knows it?"},
	{[]error{store.ErrUnreachable}, "store_unavailable", exitUnavailable, unreachableHint},
	{[]error{store.ErrFull}, "store_full", exitFailed, "a lock is an object of some 700 bytes: free that much outside of the repository, or raise the quota; a prune can't free it before it has its lock"},
}

// heldHint says what to do about a lock that is held.
func heldHint(e session.HeldError) string {
	if e.Own {
		return "it is the lock that this very command runs under, or waits for that: it can't be had before the command ends; use another one, or none"
	}
	if e.Place.Repo == "" && e.Place.URL != "" {
		return also.Hint(e.Place.URL, e.Holders[0])
	}
	gone := 0
	for _, h := range e.Holders {
		switch h.Verdict {
		case replock.Unreadable:
			return "if no operation is running, run repolock break-lock"
		case replock.Doubtful:
			return fmt.Sprintf("one clock says that it has expired: if its holder no longer runs, repolock break-lock --stale deletes it; --wait %s watches it for its whole ttl, and then passes it",
				plainly((h.TTL + time.Minute).Truncate(time.Second)))
		}
		if h.ProcessGone {
			gone++
		}
	}
	if gone == len(e.Holders) {
		return "repolock break-lock --dead removes the locks of processes that are gone; otherwise they expire by themselves"
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

// plainly formats a duration as people write it for a flag: 24h, 1h30m.
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
