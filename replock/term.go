package replock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lease"
)

// term is a lock from its acquire, or from a resume, until its loss or its release. It implements
// lease.Owner. It has the objects under one id. A resume begins another term.
type term struct {
	renewer              // its objects change with each refresh
	shown   atomic.Int64 // try.shown of the last look that was answered
	others  sightings
}

// hold begins to refresh a lock that was just acquired or resumed.
func (l *Locker) hold(t *try) *term {
	k := &term{others: newSightings(t)}
	k.begin(l, t)
	k.Term = lease.New(lease.Terms{
		Schedule: l.times, Clock: l.opts.Clock, Sent: t.sent, Seen: t.seen, Parent: t.parent, Drain: k.timeout(), Early: l.earlier,
		Attempt: k.refresh, Watch: k.watch, Failed: k.failed, Extended: func() { k.tell(EventRefreshed, nil) },
		Loss: k.loss, Lost: func(err error) { k.tell(EventLost, err) }, // a Flush after the context's end waits for this event
	})
	k.Begin()
	return k
}

// loss returns the *LostError of a lock whose refreshes have ended.
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

// failed reports a failure of the refresher as events.
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

// Check implements Lock.Check.
func (k *term) Check(ctx context.Context) error {
	err := k.look(ctx)
	if errors.Is(err, errAgain) && clock.Sleep(ctx, k.l.opts.Clock, transient) == nil {
		err = k.look(ctx)
	}
	if errors.Is(err, ErrLost) {
		k.Fail(err)
	}
	if errors.Is(err, errAgain) {
		err = nil // our objects are stored, and the conflicting ones have just come
	}
	return k.usable(k.State(err))
}

// usable returns an error if the lock is held, but the parent of its context has ended.
func (k *term) usable(err error) error {
	if err == nil && k.Context().Err() != nil {
		return fmt.Errorf("the context that the %s lock was acquired with, or its Parent, has ended: %w", k.t.mode, whyEnded(k.Context()))
	}
	return err
}
