package replock

import (
	"context"
	"time"

	"github.com/repolock/repolock/internal/lease"
)

// Lock is a lock that was acquired. It is refreshed in the background until it is released or
// lost. A refresh is one put for a shared lock and two for an exclusive one, in one round trip,
// or two round trips with a list each on a store that does not itself keep If-Match. A look,
// each Options.Look, is one list.
//
// A lock that was lost can come back by Resume, as the same Lock. Until then it stays lost, and a
// context that has ended stays ended.
//
// All methods can be called concurrently. Those without a context make no request.
type Lock struct{ lease *lease.Lease }

func newLock(k *term) *Lock { return &Lock{lease.Hold(k)} }

// Context returns the lock's context. It ends when the lock is lost, with a *LostError as its
// cause, before another holder is let in; when the lock is released, with ErrReleased as its
// cause; and with the context of the acquire, or the one that Parent names instead. The work that
// the lock protects must stop when it ends. The lock itself ends with its loss and with Release
// alone. After Resume it is another context: the one of before has ended for good.
func (k *Lock) Context() context.Context { return k.lease.Context() }

// ID returns the id of this lock: 128 random bits in hex. Resume gives it a new one.
func (k *Lock) ID() string { return k.lease.About().ID }

// Mode returns Shared or Exclusive.
func (k *Lock) Mode() Mode {
	if k.lease.About().Exclusive {
		return Exclusive
	}
	return Shared
}

// Operation returns the operation that the lock was acquired for.
func (k *Lock) Operation() string { return k.lease.About().Operation }

// Key returns the key of the lock's flag, the object that only this lock writes. Resume gives it a
// new one.
func (k *Lock) Key() string { return k.lease.About().Key }

// Fence returns the fencing number, which is larger for each later holder of the exclusive lock,
// so that a protected resource can refuse the writes of an earlier one. It returns false unless
// the lock is exclusive and was acquired with the option Fence.
func (k *Lock) Fence() (uint64, bool) {
	fence := k.lease.About().Fence
	return fence, fence != 0
}

// Left returns how long the lock is held without another refresh, or 0 if it is lost or
// released. The time for which the machine is suspended counts.
func (k *Lock) Left() time.Duration { return k.lease.Left() }

// Lost returns the reason for which the lock was lost, or nil. It is nil again once Resume has
// returned nil.
func (k *Lock) Lost() *LostError {
	if lost := k.lease.Lost(); lost != nil {
		return lost.Err.(*LostError)
	}
	return nil
}

// Renew refreshes the lock at once, and returns nil if the lock is held and its context has not
// ended. Call it before a batch that must not run without the lock. It costs as much as a
// refresh. ctx bounds it.
//
// A *LostError means that the lock is lost. ErrReleased means that it was released. After any
// other error the lock can still be held: the refresh might have been stored, and the lease
// lasts until its deadline.
func (k *Lock) Renew(ctx context.Context) error {
	held := k.lease.Owner().(*term)
	return held.usable(held.Renew(ctx))
}

// Check looks whether the lock is still stored, and returns nil if it is and the lock's context
// has not ended. Call it after the work that the lock protects, to find out that the lock was
// not broken meanwhile. It writes nothing and does not extend the lease. It costs one list; in a
// repository with many locks, up to two more requests, and one for each conflicting lock that has
// come since the last look. If one of a client of another protocol has just come, it looks again 3 s
// later. Its errors are those of Renew.
func (k *Lock) Check(ctx context.Context) error { return k.lease.Check(ctx) }
