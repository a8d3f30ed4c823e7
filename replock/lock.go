package replock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
)

// Lock is a lock that was acquired. It is refreshed in the background until it is released or lost.
// A refresh is one put for a shared lock and two for an exclusive one, in one round trip. On a
// store that doesn't itself keep If-Match it takes two round trips, and a list for each put. The
// holder also looks at the lock every Options.Look, with one list.
//
// A lost lock can come back by Resume, as the same Lock. Until then it stays lost. A context that
// has ended stays ended.
//
// All methods can be called concurrently. Those without a context make no request.
type Lock struct{ lease *lease.Lease }

func newLock(k *term) *Lock { return &Lock{lease.Hold(k)} }

// Context returns the lock's context. It ends when the lock is lost, before another acquirer can
// take it; its cause is then a *LostError. It ends when the lock is released; its cause is then
// ErrReleased. And it ends with the context of the acquire, or with the one that Parent names
// instead. The work that the lock protects must stop when it ends. The lock itself ends only by its
// loss or by Release. After Resume, Context returns a new context; the previous one has ended for
// good.
func (k *Lock) Context() context.Context { return k.lease.Context() }

// ID returns the id of this lock: 128 random bits in hex. Resume changes it.
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

// Key returns the key of the lock's flag, the object that only this lock writes. Resume changes it.
func (k *Lock) Key() string { return k.lease.About().Key }

// Fence returns the fencing number, which is larger for each later holder of the exclusive lock,
// so that a protected resource can refuse the writes of an earlier one. It returns false unless
// the lock is exclusive and was acquired with the option Fence.
func (k *Lock) Fence() (uint64, bool) {
	fence := k.lease.About().Fence
	return fence, fence != 0
}

// Left returns the time until the lock is lost unless it is refreshed, or 0 if it is lost or
// released. Time counts while the machine is suspended.
func (k *Lock) Left() time.Duration { return k.lease.Left() }

// Lost returns the reason why the lock was lost, or nil. It returns nil again after Resume has
// returned nil.
func (k *Lock) Lost() *LostError {
	if lost := k.lease.Lost(); lost != nil {
		return lost.Err.(*LostError)
	}
	return nil
}

// Renew refreshes the lock at once, and returns nil if the lock is held and its context has not
// ended. Call it before a batch that must not run without the lock. It costs as much as a refresh.
// ctx bounds it.
//
// A *LostError means that the lock is lost. ErrReleased means that it was released. After any other
// error the lock can still be held: the refresh might have been stored, and the lease lasts until
// its deadline.
func (k *Lock) Renew(ctx context.Context) error {
	held := k.lease.Owner().(*term)
	return held.usable(held.Renew(ctx))
}

// Check looks whether the lock is still stored, and returns nil if it is and the lock's context has
// not ended. Call it after the work that the lock protects, to find out whether the lock was broken
// meanwhile. It writes nothing and doesn't extend the lease. It costs one list. In a repository
// with many locks it costs up to two more requests, and one for each conflicting lock that was put
// since the last look. If a client of another protocol has just put one, Check looks again 3 s
// later. Its errors are those of Renew.
func (k *Lock) Check(ctx context.Context) error { return k.lease.Check(ctx) }

// Do runs work under a lock: it acquires the lock, calls work once, checks the lock
// (Lock.Check), and releases it, even if work panics. The context that work receives ends when
// the lock is lost and when ctx ends. Then work must return.
//
// If the lock is not acquired, work is not called, and Do returns the error of Exclusive or Shared.
// Otherwise Do returns the error of work, joined with a *LostError if the lock was lost before work
// returned, and with the error of Release. After a *LostError the caller must find out whether the
// work is complete. Do doesn't resume a lost lock. It costs an acquire, a Check and a Release.
func (l *Locker) Do(ctx context.Context, mode Mode, operation string, work func(context.Context) error, opts ...AcquireOption) (err error) {
	if mode != Shared && mode != Exclusive {
		return fmt.Errorf("%v: must be Shared or Exclusive", mode)
	}
	lock, err := l.acquire(ctx, mode, operation, opts...)
	if err != nil {
		return err
	}
	defer func() { err = fault.Join(err, lock.Release(ctx)) }()
	err = work(lock.Context())
	if lost := lostBy(ctx, lock.lease.Owner().(*term)); lost != nil && !errors.Is(err, lost) {
		err = fault.Join(lost, err)
	}
	return err
}

// lostBy looks at the lock, and returns its loss, or nil. If the look fails, the lock counts as
// held until its lease ends, because no other acquirer can take it before that.
func lostBy(ctx context.Context, k *term) error {
	_ = k.Check(context.WithoutCancel(ctx))
	for k.Lost() == nil && k.Left() <= 0 {
		select {
		case <-k.Done():
		case <-k.Clock.After(10 * time.Millisecond): // a refresh has extended the lease just now
		}
	}
	if lost := k.Lost(); lost != nil {
		return lost.Err
	}
	return nil
}
