package session

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// SignalError is the signal that ended an acquire, or a keeper.
type SignalError struct{ Signal syscall.Signal }

func (e SignalError) Error() string { return e.Signal.String() }

// HeldError is a replock.HeldError with the place of the lock.
type HeldError struct {
	*replock.HeldError
	Place Place
	// Own says that the lock can't be had before this process ends: it runs under a lock
	// that is in the way.
	Own bool
	// ExitCode is Request.HeldCode.
	ExitCode int
}

func (e HeldError) Error() string {
	if e.Place.other() {
		return e.other()
	}
	return e.HeldError.Error() + "; " + e.Place.Looked()
}

// other is the text for a lock of another system, which has one holder, and no ttl perhaps.
func (e HeldError) other() string {
	says := e.Place.URL + " is held"
	if e.Waited >= time.Second/2 {
		says = fmt.Sprintf("%s is still held after %s", e.Place.URL, text.Duration(e.Waited))
	}
	if len(e.Holders) == 0 {
		return says
	}
	h := e.Holders[0]
	if h.Verdict == replock.Unreadable {
		return fmt.Sprintf("%s: it can't be read (%s)", says, text.Brief(h.Why))
	}
	says += " by " + text.Or(h.Holder, "a holder that doesn't say its name")
	if !h.Acquired.IsZero() {
		says += ", since " + h.Acquired.UTC().Format(time.RFC3339)
	}
	switch {
	case h.ProcessGone:
		says += "; that process is gone"
	case h.Verdict == replock.Stale:
		says += "; it is stale"
	case h.TTL > 0:
		says += fmt.Sprintf("; it expires in %s unless refreshed", text.Duration(h.Left))
	}
	if e.Err != nil {
		says += "; stopped waiting: " + e.Err.Error()
	}
	return says
}

func (e HeldError) Unwrap() error { return e.HeldError }

// NotAcquiredError is the reason a lock was not acquired. The command was not started.
type NotAcquiredError struct {
	Err error
	// Answered says that the store has answered a request.
	Answered bool
}

func (e NotAcquiredError) Error() string { return e.Err.Error() }

func (e NotAcquiredError) Unwrap() error { return e.Err }

var (
	// ErrOwnerEnded is returned by Keeper.Run if the owner ended before the lock was held.
	ErrOwnerEnded = errors.New("the process that it was for has ended")
	// ErrUnknownRequest is returned to a script for a request that the keeper doesn't know.
	ErrUnknownRequest = errors.New("this version of repolock doesn't do that")

	// errAbandoned ends a keeper that acquire hasn't accepted.
	errAbandoned = errors.New("acquire ended before it printed the lock")
	// errOwn ends a wait that would never end.
	errOwn = errors.New("the lock that this command runs under is in the way")
)
