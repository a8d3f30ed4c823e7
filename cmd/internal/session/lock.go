// Package session holds a lock while work is done: around one command, or for a script
// that asks a keeper. It decides what happens when the lock can't be acquired and when it
// is lost.
//
// It holds any Lock that a Locker acquires. Repository acquires those of package replock.
package session

import (
	"context"
	"syscall"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/replock"
)

// Lock is a lock that is held and refreshes itself. Its methods can be called
// concurrently, and do what those of replock.Lock do.
type Lock interface {
	ID() string
	Key() string
	Mode() replock.Mode
	Operation() string
	Fence() (number uint64, ok bool)

	// Context ends when the lock is lost or released.
	Context() context.Context
	// Deadline is when the lock is lost unless it is refreshed before, on the clock since
	// boot.
	Deadline() time.Duration
	// Seen returns what the clocks showed before the last look at the lock.
	Seen() clock.Reading
	// Lost returns the loss of the lock, or nil.
	Lost() *replock.LostError

	// Check looks whether the lock is there, and writes nothing.
	Check(context.Context) error
	// Renew refreshes the lock at once.
	Renew(context.Context) error
	Release(context.Context) error
	// Resume acquires a lost lock again, unless another holder can have had it meanwhile. It
	// returns the lock that is held then, which can be the same Lock.
	Resume(context.Context) (Lock, error)
}

// Several is a Lock that is several locks, in the order of Request.Places.
type Several interface{ IDs() []string }

// ids returns the ids of a lock.
func ids(lock Lock) []string {
	if s, ok := lock.(Several); ok {
		return s.IDs()
	}
	return []string{lock.ID()}
}

// Finisher is a Lock that is told before its release how the work under it has ended.
type Finisher interface{ Finish(success bool) }

// Connected is a Lock that lasts no longer than its connections.
type Connected interface{ Connections() []syscall.Conn }

// connections returns those that the guard must keep open until the command has ended.
func connections(lock Lock) []syscall.Conn {
	if c, ok := lock.(Connected); ok {
		return c.Connections()
	}
	return nil
}

// Locker acquires a lock, once.
type Locker interface {
	// Acquire returns a lock that is held, or an error: a replock.HeldError if it is held,
	// or a HeldError if Request.Place isn't where. observe gets the events of the lock, in
	// order, until the lock is released. It returns at once, and can be called concurrently.
	Acquire(ctx context.Context, observe func(events.Event)) (Lock, error)
	// Flush waits until observe has got all events so far, or ctx has ended. It does
	// nothing before Acquire.
	Flush(ctx context.Context)
	// Answered reports whether the store has answered a request. It is called after
	// Acquire.
	Answered() bool
}

// leased reports whether the lease of a lock lasts.
func leased(lock Lock) bool {
	return lock.Lost() == nil && clock.System{}.Elapsed() < lock.Deadline()
}
