// Package locking lets only one caller at a time work on something: it locks a string key in a backend, such as a Redis
// server or a directory. Each backend is a package below this one. In it, Open opens the backend of a directory or of a
// server, and New makes one that needs neither (locking/memory). Open reads files, but makes no connection, so it takes
// no context.
//
// If another holder has the lock, TryLock returns false, and no error. An error means that the backend is broken.
package locking

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/repolock/repolock/internal/fault"
)

// Backend keeps locks. Its methods can be called concurrently.
type Backend interface {
	// TryLock acquires the lock of a key. It doesn't wait for another holder: ok is false if one has the lock. The ttl
	// must be positive; a backend can refuse a ttl that it can't keep. After an error the caller has no lock. If
	// TryLock might have stored a lock, the backend removes it, or it expires after the ttl.
	TryLock(ctx context.Context, key string, ttl time.Duration) (h Handle, ok bool, err error)
	// Renew makes the lock last for another ttl from now. It returns ErrLost if the lock is certainly lost. After
	// another error the lock lasts at least until its previous ttl is over.
	Renew(ctx context.Context, h Handle) error
	// Release releases the lock of a handle, and never the lock of another handle. It returns ErrLost if the handle's
	// lock was already lost.
	Release(ctx context.Context, h Handle) error
	// Cleanup removes the remains of expired locks, such as temporary files. In many backends there are none, and
	// Cleanup does nothing.
	Cleanup(ctx context.Context) error
}

// ErrLost is returned when the lock of a handle is no longer held.
var ErrLost error = fault.HandleLost

// ErrKey is returned for a key that the backend doesn't allow.
var ErrKey error = fault.LockKey

// These errors report a backend that doesn't work. If its error is another one, this package doesn't know the cause.
var (
	// ErrUnreachable is returned if the server sent nothing at all: there is no connection, or no answer. If the server
	// has sent anything to TryLock, it isn't unreachable.
	ErrUnreachable error = fault.ServerUnreachable
	// ErrPermission is returned if the server or the file system refuses this user.
	ErrPermission error = fault.ServerPermission
	// ErrUnfit is returned if the server answers, but can't keep a lock with its present settings.
	ErrUnfit error = fault.ServerUnfit
)

// Handle is an acquired lock. Renew and release it with the Backend value that returned it: another value for the same
// server or directory can return ErrLost. The zero Handle is no lock.
type Handle struct {
	key, token string
	ttl        time.Duration
}

// NewHandle returns a handle with a new random token. Only backends call it.
func NewHandle(key string, ttl time.Duration) Handle {
	return Handle{key, rand.Text(), ttl}
}

// Key returns the key of the lock.
func (h Handle) Key() string { return h.key }

// TTL returns how long the lock lasts after TryLock and after each Renew.
func (h Handle) TTL() time.Duration { return h.ttl }

// Token returns the random token by which the backend recognizes the holder. It is a secret: a program that knows it
// can release the lock.
func (h Handle) Token() string { return h.token }

// String returns only the key, because the token must not appear in logs.
func (h Handle) String() string { return h.key }

// Info describes the holder of a lock, as far as the backend knows it.
type Info struct {
	Key string // of the lock
	// Holder names the program or the request, Host its machine, and PID its process. Only package beads judges by the
	// PID whether the lock is stale.
	Holder, Host string
	PID          int
	// Request, Actor and Intent are the id of the holder's execution, its user and its work. Only
	// package towerfleet sets them.
	Request, Actor, Intent string
	// Acquired and Renewed are times of the holder's clock, the server's or this machine's. Each backend documents
	// which clock it is.
	Acquired, Renewed time.Time
	TTL               time.Duration // how long the lock lasts after each renewal
	// Stale is set if the holder has certainly ended, or the lock's ttl is over.
	Stale bool
	// Remote is set if the holder's process belongs to another machine, so that only that machine can find out whether it
	// has ended. Only package beads sets it.
	Remote bool
	// Unreadable is why the lock can't be read, or why it isn't a lock of this backend. It is "" for a readable lock.
	// An unreadable lock counts as held.
	Unreadable string
	// Revision changes with each new holder. It isn't secret. Break compares it.
	Revision string
}

// Watcher is implemented by backends that can notice the loss of a lock between two renewals.
type Watcher interface {
	// Watch returns a channel that the backend closes when it notices that the lock of a handle is lost. From then on
	// Renew returns ErrLost. The channel can stay open after a release, and after a loss that the backend doesn't
	// notice.
	Watch(h Handle) <-chan struct{}
}

// Inspector is implemented by backends that can describe the holder of a lock.
type Inspector interface {
	// Inspect describes the holder of a key's lock. It returns nil if the lock is free. It writes nothing.
	Inspect(ctx context.Context, key string) (*Info, error)
}

// Breaker is implemented by backends whose locks can be broken.
type Breaker interface {
	// Break removes the lock that Inspect has described, unless its Revision has changed since. If stale is set, it
	// removes the lock only if it is stale. It reports whether it has removed the lock.
	Break(ctx context.Context, seen *Info, stale bool) (bool, error)
}

// Resumer is implemented by backends that know whether another holder might have acquired a lock that wasn't renewed in
// time.
type Resumer interface {
	// Resume renews the lock, even after its ttl, if no other holder can have acquired it since TryLock. Otherwise it
	// returns ErrLost.
	Resume(ctx context.Context, h Handle) error
}

// Examiner is implemented by backends whose server has settings that can lose a lock, or give it to two holders.
type Examiner interface {
	// Examine reads the server's settings, and writes nothing. It returns an error only if the
	// server doesn't answer or refuses this user.
	Examine(ctx context.Context) ([]Finding, error)
}

// Finding is one setting or fact that Examine has checked.
type Finding struct {
	// What names the setting in a word or two, such as "eviction". Found is its value, in one line.
	What, Found string
	// Severity is how dangerous Found is to locks.
	Severity Severity
	// Advice names the change that the user should make. It is empty if Severity is Good.
	Advice string
}

// Severity is how dangerous a setting is to locks.
type Severity int

const (
	// Good means that no lock is in danger.
	Good Severity = iota
	// Risky means that a lock can be lost in the case that Found or Advice names.
	Risky
	// Bad means that two holders can have a lock, or that locks are lost in everyday use.
	Bad
)

// Clock is the source of time for a lease. Only tests need one. If a backend's options have none, the backend uses the
// machine's clock, or the bubble's in testing/synctest, as Guard always does. A Clock must be safe for concurrent use,
// and advance together with the runtime's timers. It is also a replock.Clock.
type Clock interface {
	// Now returns the wall clock's time, which can be wrong and can jump.
	Now() time.Time
	// Elapsed returns the time since an arbitrary moment, on a clock that can't be set and that
	// counts suspends of the machine. Deadlines are times on this clock.
	Elapsed() time.Duration
	// After returns a channel that receives once d has passed. Suspends of the machine don't count.
	After(d time.Duration) <-chan time.Time
}
