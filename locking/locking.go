// Package locking is the capability "only one caller at a time": a lock on a string key that
// some backend keeps. Each backend is a package below this one.
//
// Contention is no failure: TryLock reports that another holder has the lock without an error.
// An error is for a backend that is broken.
package locking

import (
	"context"
	"crypto/rand"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/fault"
)

// Backend keeps locks. Its methods can be called concurrently.
type Backend interface {
	// TryLock acquires the lock of a key, and doesn't wait. ok is false if another holder has
	// it. The ttl must be positive; a backend can refuse one that it can't have. After an error
	// nothing is held: what TryLock might have stored is taken down, or expires after ttl.
	TryLock(ctx context.Context, key string, ttl time.Duration) (h Handle, ok bool, err error)
	// Renew makes the lock last for another ttl. It returns ErrLost if the lock is certainly
	// lost. After another error it isn't known; the lock lasts until its ttl is over.
	Renew(ctx context.Context, h Handle) error
	// Release frees the lock of a handle, and never the lock of another handle. It returns
	// ErrLost if the handle's lock was lost before.
	Release(ctx context.Context, h Handle) error
	// Cleanup removes what expired locks have left behind. Most backends have nothing to do.
	Cleanup(ctx context.Context) error
}

// ErrLost is returned when the lock of a handle is no longer held.
var ErrLost error = fault.HandleLost

// ErrKey is returned for a key that the backend can't have.
var ErrKey error = fault.LockKey

// Errors of a backend that doesn't work. An error that is none of them is one that nobody
// has thought of.
var (
	// ErrUnreachable is returned if the server said nothing: there is no connection, or no
	// answer. A server that has answered to TryLock, with whatever, isn't unreachable.
	ErrUnreachable error = fault.ServerUnreachable
	// ErrPermission is returned if the server, or the file system, refuses these credentials.
	ErrPermission error = fault.ServerPermission
	// ErrUnfit is returned if the server answers, and can't keep a lock as it is set up.
	ErrUnfit error = fault.ServerUnfit
)

// Handle is a lock that was acquired. It is opaque: only the backend that returned it knows
// what its token means. Renew and release it with the Backend value that returned it: another value of the
// same backend can return ErrLost, or do it, as that of Redis, which keeps the token on the server. The
// zero Handle is no lock.
type Handle struct {
	key, token string
	ttl        time.Duration
}

// NewHandle returns a handle with a new random token, for backends.
func NewHandle(key string, ttl time.Duration) Handle {
	return Handle{key, rand.Text(), ttl}
}

// Key returns the key of the lock.
func (h Handle) Key() string { return h.key }

// TTL returns how long the lock lasts without a renewal.
func (h Handle) TTL() time.Duration { return h.ttl }

// Token returns the random token, for backends. A caller that knows the token of another
// holder can release its lock.
func (h Handle) Token() string { return h.token }

// String returns the key: a token doesn't belong into logs.
func (h Handle) String() string { return h.key }

// Info describes the holder of a lock, as far as the backend knows it.
type Info struct {
	Key string
	// Holder names the program or the request, Host its machine, PID its process. A pid is
	// for people, unless the backend's format says that it is a condition.
	Holder, Host string
	PID          int
	// Request, Actor and Intent are the id of the holder's execution, its user and its work, if the
	// backend's format has them.
	Request, Actor, Intent string
	// Acquired and Renewed are of the clocks that the backend's format uses.
	Acquired, Renewed time.Time
	TTL               time.Duration
	// Stale is set if the holder has certainly ended, or has let its ttl pass.
	Stale bool
	// Trouble says why the lock can't be read. Such a lock is held.
	Trouble string
	// Revision is what Break compares. It changes when another holder has the lock, and is no
	// secret by which a lock could be released.
	Revision string
}

// Watcher is implemented by backends that can notice the loss of a lock before it is renewed.
type Watcher interface {
	// Watch returns a channel that is closed when the lock of a handle is lost, as far as the
	// backend notices: Renew returns ErrLost then. A lock can also be lost without that. The
	// channel of a lock that was released can stay open.
	Watch(h Handle) <-chan struct{}
}

// Connected is implemented by backends whose locks last as long as a connection. A process that has
// a duplicate of it, such as a guard, keeps the lock when the holder's process ends.
type Connected interface {
	// Connection returns the connection of a handle's lock, or nil if there is none that can be
	// duplicated. The caller must not read or write. Release frees the lock all the same.
	Connection(h Handle) syscall.Conn
}

// Inspector is implemented by backends that know holders.
type Inspector interface {
	// Inspect returns the holder of a key's lock, or nil if the lock is free. It writes nothing.
	Inspect(ctx context.Context, key string) (*Info, error)
}

// Breaker is implemented by backends whose locks can be broken.
type Breaker interface {
	// Break removes the lock that Inspect has described, if its Revision is the same. stale
	// restricts it to a stale lock. It reports whether it has removed the lock.
	Break(ctx context.Context, seen *Info, stale bool) (bool, error)
}

// Resumer is implemented by backends that can tell whether a lock was held without a gap
// although it wasn't renewed in time.
type Resumer interface {
	// Resume makes the lock last for another ttl, as Renew, if no other holder can have had it
	// since TryLock. It returns ErrLost otherwise.
	Resume(ctx context.Context, h Handle) error
}

// Examiner is implemented by backends whose server can be set up so that a lock is lost or
// given twice.
type Examiner interface {
	// Examine looks at the server's settings, and writes nothing. An error is for a server
	// that can't be asked.
	Examine(ctx context.Context) ([]Finding, error)
}

// Finding is one thing that Examine has looked at.
type Finding struct {
	// What is it in a word or two, Found what was found, in one line.
	What, Found string
	// Verdict says whether locks of this server can be trusted.
	Verdict Verdict
	// Advice says what to change. It is empty if Verdict is Good.
	Advice string
}

// Verdict is what a Finding means for locks.
type Verdict int

const (
	// Good is as it should be, or only for information.
	Good Verdict = iota
	// Doubtful loses a lock in a case that Found or Advice names.
	Doubtful
	// Bad lets two holders in, or loses locks in everyday use.
	Bad
)

// Clock tells the time in the two ways that a lease needs. A program needs none: the clock of
// Guard, and of a backend without this option, is the machine's, and in a bubble of testing/synctest
// the bubble's. A Clock can be used concurrently, and must advance together with the runtime's
// timers. Each is also a replock.Clock.
type Clock interface {
	// Now returns the wall clock's time, which can be wrong and can jump.
	Now() time.Time
	// Elapsed returns the time on a clock that can't be set, and that counts the time for which
	// the machine was suspended. Its zero is arbitrary. Deadlines are times on this clock.
	Elapsed() time.Duration
	// After returns a channel that receives once d has passed, suspends not counted.
	After(d time.Duration) <-chan time.Time
}
