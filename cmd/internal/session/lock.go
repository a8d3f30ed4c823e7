// Package session holds a lock during some work: around one command, or for a script, by a keeper. It handles a
// lock that can't be acquired, and one that is lost.
//
// It holds any lease that a Locker acquires. Repository acquires the leases of package replock.
package session

import (
	"context"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/lease"
)

// Locker acquires a lock, or several as one, in the order of Request.Places.
type Locker interface {
	// Acquire acquires the lock. If another holder has it, the error is a replock.HeldError, or a
	// HeldError if the lock isn't at Request.Place. observe gets the events of the lock, in order, until the
	// release. observe returns at once, and can be called concurrently.
	Acquire(ctx context.Context, observe func(events.Event)) (*lease.Set, error)
	// Flush waits until observe has got all events so far, or ctx has ended. It does nothing before Acquire.
	Flush(ctx context.Context)
	// Answered reports whether the store has answered a request of Acquire.
	Answered() bool
}
