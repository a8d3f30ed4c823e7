package session

import (
	"errors"
	"syscall"

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

func (e HeldError) Error() string { return e.HeldError.Error() + "; " + e.Place.Looked() }

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
