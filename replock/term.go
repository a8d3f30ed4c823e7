package replock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lease"
)

// term is the time from an acquire, or a resume, of a Lock to its loss or its release: a lease.Owner. It has
// the objects under one id. What was lost stays lost: a resume begins another term.
type term struct {
	renewer              // of its objects, which change with each refresh
	shown   atomic.Int64 // try.shown, of the last look that was answered
	others  sightings
}

// hold starts refreshing a lock that was just acquired or resumed.
func (l *Locker) hold(t *try) *term {
	k := &term{others: newSightings(t)}
	k.begin(l, t)
	k.Term = lease.New(lease.Terms{
		Schedule: l.times, Clock: l.opts.Clock, Sent: t.sent, Seen: t.seen, Parent: t.parent, Drain: k.timeout(), Early: l.earlier,
		Attempt: k.refresh, Watch: k.watch, Failed: k.failed, Extended: func() { k.tell(EventRefreshed, nil) },
		Loss: k.loss, Lost: func(err error) { k.tell(EventLost, err) }, // a Flush after the context has ended waits for it
	})
	k.Begin()
	return k
}

// loss returns the *LostError for which the refreshes have ended.
func (k *term) loss(expired bool, err error) lease.Loss {
	if lost, ok := errors.AsType[*LostError](err); ok && !expired {
		return lossOf(lost)
	}
	lost := &LostError{Mode: k.t.mode, Key: k.t.flag.key, Reason: "it could not be refreshed in time"}
	if expired {
		lost.Err = err
	}
	return lossOf(lost)
}

func lossOf(lost *LostError) lease.Loss { return lease.Loss{Err: lost, Definite: lost.Definite} }

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

func (k *term) event(kind EventKind, err error) Event {
	e := k.t.event(kind)
	e.Err = err
	e.Held, e.Left = k.Times()
	return e
}

func (k *term) tell(kind EventKind, err error) { k.l.tell(k.event(kind, err)) }

// About implements lease.Owner.
func (k *term) About() lease.About {
	return lease.About{ID: k.t.id, Key: k.t.flag.key, Operation: k.t.operation, Exclusive: k.t.mode == Exclusive, Fence: k.t.fence}
}

// Resumed implements lease.Owner.
func (k *term) Resumed() { k.tell(EventResumed, nil) }

// Check is Lock.Check.
func (k *term) Check(ctx context.Context) error {
	err := k.look(ctx)
	if errors.Is(err, errAgain) && clock.Sleep(ctx, k.l.opts.Clock, transient) == nil {
		err = k.look(ctx)
	}
	if errors.Is(err, ErrLost) {
		k.Fail(err)
	}
	if errors.Is(err, errAgain) {
		err = nil // our objects are there, and those beside them have come since
	}
	return k.usable(k.State(err))
}

// usable returns an error if the lock is held, but its context has ended with its parent.
func (k *term) usable(err error) error {
	if err == nil && k.Context().Err() != nil {
		return fmt.Errorf("the context that the %s lock was acquired with, or its Parent, has ended: %w", k.t.mode, whyEnded(k.Context()))
	}
	return err
}
