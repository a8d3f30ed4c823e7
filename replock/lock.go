package replock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/refresh"
)

// Lock is a lock that was acquired. It is refreshed until it is released or
// lost. It may be used concurrently.
type Lock struct {
	l     *Locker
	t     *try       // its objects change with each refresh:
	mu    sync.Mutex // guards them until done is closed, and:
	probe []*entry   // what proofs may have left
	fence uint64
	since time.Duration // when it was acquired, or resumed, on the clock's Elapsed

	ctx    context.Context
	cancel context.CancelCauseFunc

	refresher *refresh.Refresher
	stop      context.CancelCauseFunc
	done      chan struct{} // closed when the refresher has ended
	deadline  atomic.Int64  // on the clock's Elapsed
	seq       atomic.Uint64
	seen      atomic.Pointer[clock.Reading]
	now       atomic.Pointer[storeTime] // as others has it
	others    sightings
	lost      atomic.Pointer[LostError]
	ended     atomic.Int64 // when it was lost, on the clock's Elapsed

	releasing  atomic.Bool
	released   chan struct{} // closed when Release is over
	releaseErr error         // its result, valid once released is closed
	resumed    atomic.Bool
	resuming   atomic.Bool
}

// hold starts refreshing a lock that was just acquired.
func (l *Locker) hold(t *try, fence uint64) *Lock {
	lock := &Lock{l: l, since: l.opts.Clock.Elapsed(), t: t, fence: fence, done: make(chan struct{}), released: make(chan struct{})}
	lock.ctx, lock.cancel = context.WithCancelCause(t.parent)
	lock.deadline.Store(int64(t.deadline))
	lock.seen.Store(&t.seen)
	lock.others = newSightings(t)
	lock.now.Store(&t.st)
	lock.refresher = refresh.New(refresh.Refresher{
		Schedule: l.schedule, Clock: l.opts.Clock, Start: t.sent, Drain: lock.timeout(),
		Attempt: lock.refresh, Failed: lock.failed, Extended: lock.extended, Early: l.earlier,
	})
	running, stop := context.WithCancelCause(context.WithoutCancel(t.parent))
	lock.stop = stop
	go lock.run(running)
	return lock
}

// run refreshes until the lock is released or lost, and ends its context in
// time.
func (k *Lock) run(ctx context.Context) {
	defer close(k.done)
	watching, unwatch := context.WithCancel(ctx)
	go k.watch(watching)
	err := k.refresher.Run(ctx)
	unwatch()
	if errors.Is(err, ErrReleased) {
		return
	}
	var lost *LostError
	if !errors.As(err, &lost) {
		lost = &LostError{Mode: k.t.mode, Key: k.t.flag.key, Reason: "it could not be refreshed in time"}
		var expired *refresh.ExpiredError
		if errors.As(err, &expired) {
			lost.Err = expired.Last
		}
	}
	k.ended.Store(int64(min(k.l.opts.Clock.Elapsed(), k.Deadline())))
	k.lost.Store(lost)
	k.tell(EventLost, lost) // who sees the context end, and calls Later, comes after it
	k.cancel(lost)
}

// failed and extended are told by the refresher.
func (k *Lock) failed(n int, gaveUp bool, err error) {
	e := k.event(EventRefreshFailed, err)
	e.Failures = n
	k.l.tell(e)
	if gaveUp {
		e.Kind = EventGaveUp
		k.l.tell(e)
	}
}

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
	return Event{
		Kind: kind, Mode: k.t.mode, Operation: k.t.operation, ID: k.t.id, Key: k.t.flag.key, Err: err,
		Left: deadline - now, Held: until - k.since,
	}
}

func (k *Lock) tell(kind EventKind, err error) { k.l.tell(k.event(kind, err)) }

// Context ends when the lock is lost, with a *LostError as its cause, before
// another holder is let in; when it is released, with ErrReleased as its cause; and with
// its Parent, if the lock was acquired with one. It doesn't end with the context of the
// acquire. What the lock protects must stop when it ends.
func (k *Lock) Context() context.Context { return k.ctx }

// ID names this lock: 128 random bits in hex. A resumed lock has a new one.
func (k *Lock) ID() string { return k.t.id }

// Mode says whether the lock is shared or exclusive.
func (k *Lock) Mode() Mode { return k.t.mode }

// Operation is the name that the lock was acquired for.
func (k *Lock) Operation() string { return k.t.operation }

// Key is the object that is the lock's ground truth.
func (k *Lock) Key() string { return k.t.flag.key }

// Fence is a number that is larger for each later holder of the exclusive lock,
// so that whatever is written to can refuse writes of an earlier one. It is
// false unless Options.Fence was set and the lock is exclusive.
func (k *Lock) Fence() (uint64, bool) { return k.fence, k.fence != 0 }

// Left is how long the lock is held without another refresh: 0 if it is lost or released.
// It counts the time for which the machine is suspended.
func (k *Lock) Left() time.Duration {
	if k.lost.Load() != nil || k.releasing.Load() {
		return 0
	}
	return max(k.Deadline()-k.l.opts.Clock.Elapsed(), 0)
}

// Deadline is for the guard of the repolock command, which reads the same clock: when the
// lock is lost unless it is refreshed before, as a reading of the clock's Elapsed, on Linux
// CLOCK_BOOTTIME. Others want Left.
func (k *Lock) Deadline() time.Duration { return time.Duration(k.deadline.Load()) }

// Lost returns why the lock was lost, or nil.
func (k *Lock) Lost() *LostError { return k.lost.Load() }

// Check refreshes the lock at once and returns nil if it is held and its context hasn't
// ended: use it before a batch that must not be done without. After a *LostError the lock
// is lost; after another error it may be held, and that couldn't be confirmed. It costs
// as much as a refresh. ctx bounds it.
func (k *Lock) Check(ctx context.Context) error {
	err := k.refresher.Now(ctx, k.done)
	if errors.Is(err, ErrLost) {
		<-k.done // and the lock's context has ended
	}
	return k.state(err)
}

// Confirm looks whether the lock is still there, and returns nil if it is: use it
// after what the lock protected, to know that it wasn't broken meanwhile. It
// writes nothing, doesn't extend the lease, and is one round trip, or two if there
// are many locks. If another client's lock that conflicts has just come, it looks
// again 3 s later. Its errors are Check's.
func (k *Lock) Confirm(ctx context.Context) error {
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

// state is why the lock isn't held any more, or its context has ended, or else what
// couldn't be found out.
func (k *Lock) state(unknown error) error {
	if lost := k.lost.Load(); lost != nil {
		return lost
	}
	if k.releasing.Load() {
		return ErrReleased
	}
	if unknown == nil && k.ctx.Err() != nil {
		return fmt.Errorf("the context of the %s lock has ended: %w", k.t.mode, whyEnded(k.ctx))
	}
	return unknown
}
