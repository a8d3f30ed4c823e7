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

// term is the time from an acquire, or a resume, of a Lock to its loss or its release. It has the
// objects under one id, and one context. What was lost stays lost: a resume begins another term.
type term struct {
	renewer               // of its objects, which change with each refresh
	since   time.Duration // when it began, on the clock's Elapsed

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
}

// hold starts refreshing a lock that was just acquired or resumed.
func (l *Locker) hold(t *try) *term {
	lock := &term{since: l.opts.Clock.Elapsed(), done: make(chan struct{})}
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
func (k *term) run(ctx context.Context) {
	defer close(k.done)
	watching, unwatch := context.WithCancel(ctx)
	go k.watch(watching)
	expired, err := k.refresher.Run(ctx)
	unwatch()
	if errors.Is(err, ErrReleased) {
		return
	}
	lost, ok := errors.AsType[*LostError](err)
	if !ok {
		lost = &LostError{Mode: k.t.mode, Key: k.t.flag.key, Reason: "it could not be refreshed in time"}
		if expired {
			lost.Err = err
		}
	}
	k.ended.Store(int64(min(k.l.opts.Clock.Elapsed(), k.end())))
	k.lost.Store(lost)
	k.tell(EventLost, lost) // before cancel: a Flush after the context has ended waits for it
	k.cancel(lost)
}

// failed reports failures of the refresher as events.
func (k *term) failed(n int, gaveUp bool, err error) {
	e := k.event(EventRefreshFailed, err)
	e.Failures = n
	k.l.tell(e)
	if gaveUp {
		e.Kind = EventGaveUp
		k.l.tell(e)
	}
}

// extended sets the deadline after a refresh.
func (k *term) extended(deadline time.Duration) {
	k.deadline.Store(int64(deadline))
	k.tell(EventRefreshed, nil)
}

func (k *term) event(kind EventKind, err error) Event {
	now, deadline := k.l.opts.Clock.Elapsed(), k.end()
	until := min(now, deadline)
	if k.lost.Load() != nil {
		until = time.Duration(k.ended.Load())
	}
	e := k.t.event(kind)
	e.Err, e.Left, e.Held = err, deadline-now, until-k.since
	return e
}

func (k *term) tell(kind EventKind, err error) { k.l.tell(k.event(kind, err)) }

// left is Lock.Left.
func (k *term) left() time.Duration {
	if k.lost.Load() != nil || k.releasing.Load() {
		return 0
	}
	return max(k.end()-k.l.opts.Clock.Elapsed(), 0)
}

// renewNow is Lock.Renew.
func (k *term) renewNow(ctx context.Context) error {
	return k.state(k.refresher.Now(ctx, k.done))
}

// check is Lock.Check.
func (k *term) check(ctx context.Context) error {
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
func (k *term) state(unknown error) error {
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
