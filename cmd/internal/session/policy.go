package session

import (
	"errors"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// Policy decides about a command whose lock can't be acquired.
type Policy struct {
	SkipHeld       bool // skip the command if another holder has its lock
	RunUnreachable bool // run the command without its lock if the store can't be reached
}

// Skips reports whether a command is skipped, because another holder has its lock.
func (p Policy) Skips(err error) bool {
	return p.SkipHeld && errors.Is(err, fault.NotAcquired) && errors.Is(err, replock.ErrHeld)
}

// RunsUnlocked reports whether a command runs although its lock was not acquired. The store must not have answered any
// request: another holder could have the lock.
func (p Policy) RunsUnlocked(err error) bool {
	return p.RunUnreachable && errors.Is(err, fault.Unanswered) && errors.Is(err, store.ErrUnreachable)
}
