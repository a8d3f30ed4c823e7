package replock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/refresh"
)

// Lock is a lock that was acquired. It is refreshed in the background until it is released or
// lost. A refresh is one put for a shared lock and two for an exclusive one, in one round trip,
// or two round trips with a list each on a store that does not itself keep If-Match. A look,
// each Options.Look, is one list.
//
// All methods can be called concurrently. Those without a context make no request.
type Lock struct {
	renewer               // of its objects, which change with each refresh
	since   time.Duration // when it was acquired, or resumed, on the clock's Elapsed

	ctx    context.Context
	cancel context.CancelCauseFunc

	refresher *refresh.Refresher
	stop      context.CancelCauseFunc
	done      chan struct{} // closed when the refresher has ended
	seen      atomic.Pointer[clock.Reading]
	shown     atomic.Int64 // try.shown, of the last look that was answered
	others    sightings
	lost      atomic.Pointer[LostError]
	ended     atomic.Int64 // when it was lost, on the clock's Elapsed

	released   chan struct{} // closed when Release is over
	releaseErr error         // its result, valid once released is closed
	resumed    atomic.Bool
	resuming   atomic.Bool
}

// hold starts refreshing a lock that was just acquired.
func (l *Locker) hold(t *try) *Lock {
	lock := &Lock{since: l.opts.Clock.Elapsed(), done: make(chan struct{}), released: make(chan struct{})}
	lock.ctx, lock.cancel = context.WithCancelCause(t.parent)
	lock.begin(l, t)
	lock.seen.Store(&t.seen)
	lock.others = newSightings(t)
	lock.refresher = refresh.New(refresh.Refresher{
		Schedule: l.times, Clock: l.opts.Clock, Start: t.sent, Drain: lock.timeout(),
		Attempt: lock.refresh, Failed: lock.failed, Extended: lock.extended, Early: l.earlier,
	})
	running, stop := context.WithCancelCause(context.WithoutCancel(t.parent))
	lock.stop = stop
	go lock.run(running)
	return lock
}

// run refreshes until the lock is released or lost, and ends its context in time.
func (k *Lock) run(ctx context.Context) {
	defer close(k.done)
	watching, unwatch := context.WithCancel(ctx)
	go k.watch(watching)
	err := k.refresher.Run(ctx)
	unwatch()
	if errors.Is(err, ErrReleased) {
		return
	}
	lost, ok := errors.AsType[*LostError](err)
	if !ok {
		lost = &LostError{Mode: k.t.mode, Key: k.t.flag.key, Reason: "it could not be refreshed in time"}
		if expired, ok := errors.AsType[*refresh.ExpiredError](err); ok {
			lost.Err = expired.Last
		}
	}
	k.ended.Store(int64(min(k.l.opts.Clock.Elapsed(), k.Deadline())))
	k.lost.Store(lost)
	k.tell(EventLost, lost) // before cancel: a Flush after the context has ended waits for it
	k.cancel(lost)
}

// failed reports failures of the refresher as events.
func (k *Lock) failed(n int, gaveUp bool, err error) {
	e := k.event(EventRefreshFailed, err)
	e.Failures = n
	k.l.tell(e)
	if gaveUp {
		e.Kind = EventGaveUp
		k.l.tell(e)
	}
}

// extended sets the deadline after a refresh.
func (k *Lock) extended(deadline time.Duration) {
	k.deadline.Store(int64(deadline))
	k.tell(EventRefreshed, nil)
}

func (k *Lock) event(kind EventKind, err error) Event {
	now, deadline := k.l.opts.Clock.Elapsed(), k.Deadline()
	until := min(now, deadline)
	if k.lost.Load() != nil {
		until = time.Duration(k.ended.Load())
	}
	e := k.t.event(kind)
	e.Err, e.Left, e.Held = err, deadline-now, until-k.since
	return e
}

func (k *Lock) tell(kind EventKind, err error) { k.l.tell(k.event(kind, err)) }

// Context returns the lock's context. It ends when the lock is lost, with a *LostError as its
// cause, before another holder is let in; when the lock is released, with ErrReleased as its
// cause; and with the context of the acquire, or the one that Parent names instead. The work that
// the lock protects must stop when it ends. The lock itself ends with its loss and with Release
// alone.
func (k *Lock) Context() context.Context { return k.ctx }

// ID returns the id of this lock: 128 random bits in hex. A resumed lock has a new one.
func (k *Lock) ID() string { return k.t.id }

// Mode returns Shared or Exclusive.
func (k *Lock) Mode() Mode { return k.t.mode }

// Operation returns the operation that the lock was acquired for.
func (k *Lock) Operation() string { return k.t.operation }

// Key returns the key of the lock's flag, the object that only this lock writes.
func (k *Lock) Key() string { return k.t.flag.key }

// Fence returns the fencing number, which is larger for each later holder of the exclusive lock,
// so that a protected resource can refuse the writes of an earlier one. It returns false unless
// the lock is exclusive and was acquired with the option Fence.
func (k *Lock) Fence() (uint64, bool) { return k.t.fence, k.t.fence != 0 }

// Left returns how long the lock is held without another refresh, or 0 if it is lost or
// released. The time for which the machine is suspended counts.
func (k *Lock) Left() time.Duration {
	if k.lost.Load() != nil || k.releasing.Load() {
		return 0
	}
	return max(k.Deadline()-k.l.opts.Clock.Elapsed(), 0)
}

// Deadline returns the time at which the lock is lost unless it is refreshed before, on the
// clock of Clock.Elapsed: on Linux CLOCK_BOOTTIME. It is for a process beside this one that
// reads the same clock, as the guard of the repolock command does. Other callers want Left.
func (k *Lock) Deadline() time.Duration { return k.end() }

// Lost returns the reason for which the lock was lost, or nil.
func (k *Lock) Lost() *LostError { return k.lost.Load() }

// Renew refreshes the lock at once, and returns nil if the lock is held and its context has not
// ended. Call it before a batch that must not run without the lock. It costs as much as a
// refresh. ctx bounds it.
//
// A *LostError means that the lock is lost. ErrReleased means that it was released. After any
// other error the lock can still be held: the refresh might have been stored, and the lease
// lasts until its deadline.
func (k *Lock) Renew(ctx context.Context) error {
	err := k.refresher.Now(ctx, k.done)
	if errors.Is(err, ErrLost) {
		<-k.done // and the lock's context has ended
	}
	return k.state(err)
}

// Check looks whether the lock is still stored, and returns nil if it is and the lock's context
// has not ended. Call it after the work that the lock protects, to find out that the lock was
// not broken meanwhile. It writes nothing and does not extend the lease. It costs one list; in a
// repository with many locks, up to two more requests, and one for each conflicting lock that has
// come since the last look. If one of a client of another protocol has just come, it looks again 3 s
// later. Its errors are those of Renew.
func (k *Lock) Check(ctx context.Context) error {
	err := k.look(ctx)
	if errors.Is(err, errAgain) && clock.Sleep(ctx, k.l.opts.Clock, transient) == nil {
		err = k.look(ctx)
	}
	if errors.Is(err, ErrLost) {
		k.stop(err)
		<-k.done
	}
	if errors.Is(err, errAgain) {
		err = nil // our objects are there, and those beside them have come since
	}
	return k.state(err)
}

// state returns the reason for which the lock is not held any more, or its context has ended, or
// else unknown: what could not be found out.
func (k *Lock) state(unknown error) error {
	if lost := k.lost.Load(); lost != nil {
		return lost
	}
	if k.releasing.Load() {
		return ErrReleased
	}
	if unknown == nil && k.ctx.Err() != nil {
		return fmt.Errorf("the context that the %s lock was acquired with, or its Parent, has ended: %w", k.t.mode, whyEnded(k.ctx))
	}
	return unknown
}
