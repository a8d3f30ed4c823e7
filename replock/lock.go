package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
)

// Lock is a lock that was acquired. It is refreshed in the background until it is released or lost.
// A refresh is one put for a shared lock and two for an exclusive one, in one round trip. On a
// store that doesn't itself honour If-Match it takes two round trips, and a list for each put. The
// holder also looks at the lock every Options.Look, with one list.
//
// A lost lock can come back by Resume, as the same Lock. Until then it stays lost. A context that
// has ended stays ended.
//
// All methods can be called concurrently. Those without a context make no request.
type Lock struct{ lease *lease.Lease }

// locked turns the result of an acquire into a Lock.
func locked(held *term, err error) (*Lock, error) {
	if err != nil {
		return nil, err
	}
	return &Lock{lease.Hold(held)}, nil
}

// Context returns the lock's context, which ends when the work that the lock protects must stop. When the lock is lost,
// the context ends before another acquirer can take the lock, with a *LostError as its cause. When the lock is
// released, the cause is ErrReleased. The context also ends with the context of the acquire, or with the one that
// WithParent names instead; the lock itself then stays held until its loss or Release. After Resume, Context returns a
// new context. The previous one stays ended.
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

// FencingToken returns a number that is larger for each later holder of the exclusive lock, so that a protected
// resource can refuse writes of an earlier holder. It returns false unless the lock is exclusive and was acquired with
// the option WithFencingToken.
func (k *Lock) FencingToken() (uint64, bool) {
	fence := k.lease.About().Fence
	return fence, fence != 0
}

// Left returns the time until the lock is lost unless it is refreshed, or 0 if it is lost or
// released. Time counts while the machine is suspended.
func (k *Lock) Left() time.Duration { return k.lease.Left() }

// Lost returns the *LostError of a lock that was lost, or nil. After a successful Resume it returns nil again.
func (k *Lock) Lost() error {
	if lost := k.lease.Lost(); lost != nil {
		return lost.Err
	}
	return nil
}

// Refresh refreshes the lock at once, and returns nil if the lock is held and its context has not ended. Call it before
// a batch that must not run without the lock. It costs as much as a refresh in the background. ctx bounds it.
//
// A *LostError means that the lock is lost. ErrReleased means that it was released. After any other error the lock can
// still be held: the refresh might have been stored, and the lease lasts until its deadline.
func (k *Lock) Refresh(ctx context.Context) error {
	held := k.lease.Owner().(*term)
	return held.usable(held.Renew(ctx))
}

// Check looks whether the lock is still stored. It returns nil if the lock is stored and its context has not ended.
// Call it after the work that the lock protects, to find out whether the lock was broken meanwhile. It writes nothing
// and doesn't extend the lease. It costs one list. In a repository with many locks it costs up to two more requests,
// and one for each conflicting lock that was put since the last look. If a client of another protocol has just put one,
// Check looks again 3 s later. It returns the same errors as Refresh.
func (k *Lock) Check(ctx context.Context) error { return k.lease.Check(ctx) }

// Do runs work under a lock: it acquires the lock, calls work once, checks the lock
// (Lock.Check), and releases it, even if work panics. The context that work receives ends when
// the lock is lost and when ctx ends. Then work must return.
//
// Do waits for conflicting locks as Shared and Exclusive do; WithWait(0) makes it try once, as TryShared does. If
// the lock is not acquired, work is not called, and Do returns the error of the acquire.
// Otherwise Do returns the error of work, joined with a *LostError if the lock was lost before work
// returned, and with the error of Release. After a *LostError the caller must find out whether the
// work is complete. Do doesn't resume a lost lock. It costs an acquire, a Check and a Release.
func (l *Locker) Do(ctx context.Context, mode Mode, operation string, work func(context.Context) error, opts ...AcquireOption) (err error) {
	if mode != Shared && mode != Exclusive {
		return fmt.Errorf("%v: must be Shared or Exclusive", mode)
	}
	lock, err := locked(l.acquire(ctx, mode, operation, opts))
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
		case <-k.Clock.After(10 * time.Millisecond): // a refresh has just extended the lease
		}
	}
	if lost := k.Lost(); lost != nil {
		return lost.Err
	}
	return nil
}

// Shared acquires a shared lock for an operation such as a backup. It waits until no other client holds an exclusive
// lock or waits for one: WithWait bounds the wait. It costs one put and one list if no lock conflicts. If the store has
// PutCreates, the first acquire of a Locker costs one more list. In all other respects Shared is like Exclusive.
func (l *Locker) Shared(ctx context.Context, operation string, opts ...AcquireOption) (*Lock, error) {
	return locked(l.acquire(ctx, Shared, operation, opts))
}

// TryShared is Shared with WithWait(0): it doesn't wait. See TryExclusive.
func (l *Locker) TryShared(ctx context.Context, operation string, opts ...AcquireOption) (*Lock, error) {
	return l.Shared(ctx, operation, append(slices.Clip(opts), WithWait(0))...)
}

// Exclusive acquires the exclusive lock for an operation such as a prune. It waits until no other lock conflicts, in
// the order in which the waiters came: WithWait bounds the wait. It returns either a lock or an error. Without a
// conflict it costs two puts and one list if the store has If-None-Match, else two puts and two lists.
//
// A *HeldError is returned when the wait ends and another holder still has a conflicting lock. ErrUnsure is returned if
// the store's answers don't show whether another holder has one, and ErrSlow if the store is too slow for the ttl. Any
// other error is the store's. After an error this acquire has removed its objects from the store. If the store couldn't
// be reached, they expire with the ttl.
//
// ctx bounds the acquire, and is the parent of the lock's context: if ctx ends, the work under the lock must stop. The
// lock itself is held, and refreshed, until Release. A context that bounds the acquire alone needs the option
// WithParent, or the work ends with it:
//
//	soon, cancel := context.WithTimeout(ctx, time.Minute)
//	lock, err := locker.Exclusive(soon, "prune", replock.WithParent(ctx))
//	cancel() // the work goes on until ctx ends
//
// If the work outlives ctx, because one request acquires the lock and a later one releases it, use
// WithParent(context.WithoutCancel(ctx)).
func (l *Locker) Exclusive(ctx context.Context, operation string, opts ...AcquireOption) (*Lock, error) {
	return locked(l.acquire(ctx, Exclusive, operation, opts))
}

// TryExclusive is Exclusive, but doesn't wait for a held lock: it returns a *HeldError. WithWait among opts has no
// effect. If it is doubtful whether a lock is stale, TryExclusive still takes time. It watches such a lock, which has
// expired by one clock and not by another, for up to two minutes: until the lock changes, or has stayed unchanged for
// its whole ttl. A doubtful lock with a longer ttl counts as held, with the verdict Doubtful. ctx bounds all this.
func (l *Locker) TryExclusive(ctx context.Context, operation string, opts ...AcquireOption) (*Lock, error) {
	return l.Exclusive(ctx, operation, append(slices.Clip(opts), WithWait(0))...)
}

// Release ends the lock: its context ends, and its objects are deleted, even if ctx has ended. A shared lock costs one
// delete. An exclusive lock costs two deletes at once. A get of lock.exclusive comes before them, unless Check has just
// read it, or the store itself honours If-Match for deletions. If the store doesn't allow deletes, a put replaces each. A
// second call waits for the first, and returns the same error. A Resume in another goroutine gives up first.
//
// An error means that an object might be left. It expires with the ttl. If the lock was lost, only the flag is deleted.
// Release must not delete a lock.exclusive that another client has written. So it looks first, and makes the delete
// conditional if the store can.
func (k *Lock) Release(ctx context.Context) error { return k.lease.Release(ctx) }

// Resume takes back a lock that was lost because it wasn't refreshed in time, after an outage of the store
// or a suspend of the machine. It fails if another acquirer might have taken the lock since. When Resume
// returns nil, the Lock is held again, under a new id and key, and Context returns a new context. Release,
// also a deferred one, releases it. The context that ended with the loss stays ended. Work under that
// context must stop; work that continues uses the new one.
//
// Resume tries until the lock is held again, the loss is definite, or ctx ends. The new context has
// the same parent as the lost one: the acquire's context, or WithParent's. If that parent ends, Resume
// ends, too. An attempt costs an acquire and three more requests, or four if a listing has several
// pages.
//
// A *LostError with Definite set means that the lock can't be resumed. ErrReleased means that it
// was released. After any other error the lock is as it was, and Resume can be called again. Resume
// returns an error at once for a lock that is held, or that another call is resuming.
//
// Other clients of the wire format acquire a lock without removing an expired one. So don't resume a lock
// that such clients use too.
func (k *Lock) Resume(ctx context.Context) error { return k.lease.Resume(ctx) }
