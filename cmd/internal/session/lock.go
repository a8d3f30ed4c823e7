// Package session holds a lock while work is done: around one command, or for a script
// that asks a keeper. It decides what happens when the lock can't be acquired and when it
// is lost.
//
// It holds any lease that a Locker acquires. Repository acquires those of package replock.
package session

import (
	"context"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/replock"
)

// Locker acquires a lock, or several as one, in the order of Request.Places.
type Locker interface {
	// Acquire returns a lock that is held, or an error: a replock.HeldError if it is held,
	// or a HeldError if Request.Place isn't where. observe gets the events of the lock, in
	// order, until the lock is released. It returns at once, and can be called concurrently.
	Acquire(ctx context.Context, observe func(events.Event)) (*lease.Set, error)
	// Flush waits until observe has got all events so far, or ctx has ended. It does
	// nothing before Acquire.
	Flush(ctx context.Context)
	// Answered reports whether the store has answered a request. It is called after
	// Acquire.
	Answered() bool
}

// mode is the mode of a lock.
func mode(lock *lease.Set) replock.Mode {
	if lock.About().Exclusive {
		return replock.Exclusive
	}
	return replock.Shared
}

// leased reports whether the lease of a lock lasts.
func leased(lock *lease.Set) bool {
	return lock.Lost() == nil && clock.System{}.Elapsed() < lock.Deadline()
}
