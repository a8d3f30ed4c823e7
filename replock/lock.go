package replock

import (
	"context"
	"errors"
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
	mu    sync.Mutex // guards them until done is closed
	fence uint64

	parent context.Context // that the lock was acquired with
	ctx    context.Context
	cancel context.CancelCauseFunc

	refresher *refresh.Refresher
	stop      context.CancelCauseFunc
	done      chan struct{} // closed when the refresher has ended
	deadline  atomic.Int64  // on the clock's Elapsed
	seq       atomic.Uint64
	seen      atomic.Pointer[clock.Reading]
	others    sightings
	lost      atomic.Pointer[LostError]

	releasing  atomic.Bool
	released   chan struct{} // closed when Release is over
	releaseErr error         // its result, valid once released is closed
	resumed    atomic.Bool
	resuming   atomic.Bool
}

// hold starts refreshing a lock that was just acquired.
func (l *Locker) hold(ctx context.Context, t *try, fence uint64) *Lock {
	lock := &Lock{parent: ctx, l: l, t: t, fence: fence, done: make(chan struct{}), released: make(chan struct{})}
	lock.ctx, lock.cancel = context.WithCancelCause(ctx)
	lock.deadline.Store(int64(t.deadline))
	lock.seen.Store(&t.seen)
	lock.others = newSightings(t)
	lock.refresher = refresh.New(refresh.Refresher{
		Schedule: l.schedule, Clock: l.opts.Clock, Start: t.sent, Drain: lock.timeout(),
		Attempt: lock.refresh, Failed: lock.failed, Extended: lock.extended,
	})
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
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
	return Event{
		Kind: kind, Mode: k.t.mode, Operation: k.t.operation, ID: k.t.id, Key: k.t.flag.key, Err: err,
		Left: k.Deadline() - k.l.opts.Clock.Elapsed(),
	}
}

func (k *Lock) tell(kind EventKind, err error) { k.l.tell(k.event(kind, err)) }

// Context ends when the lock is lost, with a *LostError as its cause, before
// anybody else may hold it; when it is released; and with the context that the
// lock was acquired with. What the lock protects must stop when it ends.
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

// Deadline is when the lock is lost unless it is refreshed before, as a reading
// of the clock's Elapsed, which on Linux is CLOCK_BOOTTIME.
func (k *Lock) Deadline() time.Duration { return time.Duration(k.deadline.Load()) }

// Lost returns why the lock was lost, or nil.
func (k *Lock) Lost() *LostError { return k.lost.Load() }

// Check refreshes the lock at once and returns nil if it is held: use it before
// a batch that must not be done without. After a *LostError the lock is lost;
// after another error it may be held, and that couldn't be confirmed. It costs
// as much as a refresh.
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
// are over a thousand locks. Its errors are Check's.
func (k *Lock) Confirm(ctx context.Context) error {
	err := k.look(ctx)
	if errors.Is(err, ErrLost) {
		k.stop(err)
		<-k.done
	}
	if errors.Is(err, errAgain) {
		err = nil // our objects are there
	}
	return k.state(err)
}

// state is why the lock isn't held any more, or else what couldn't be found out.
func (k *Lock) state(unknown error) error {
	if lost := k.lost.Load(); lost != nil {
		return lost
	}
	if k.releasing.Load() {
		return ErrReleased
	}
	return unknown
}
