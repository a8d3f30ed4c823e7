package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/replock"
)

// taking is a lock that is to be taken, and who is told of it.
type taking struct {
	flags takeFlags
	global
	report    *reporter
	mode      replock.Mode
	operation string
	show      func(replock.Event)     // to the person
	cancel    context.CancelCauseFunc // of the context of take

	locker  *replock.Locker
	audit   *auditor
	metrics *metrics
	nested  atomic.Pointer[replock.Event] // that said that it would wait for itself
	store   *listener                     // nil until it was opened
}

// open opens what is written to.
func (t *taking) open() (err error) {
	if t.audit, err = newAuditor(t.report, t.global, t.flags.Audit); err != nil {
		return err
	}
	t.metrics, err = newMetrics(t.report, t.global, t.mode, t.operation, t.flags.Metrics)
	return err
}

// take takes the lock, and returns when all events of that have been told.
func (t *taking) take(ctx context.Context) (*replock.Lock, error) {
	s, err := t.global.store(ctx)
	if err != nil {
		return nil, err
	}
	t.store = &listener{Store: s}
	t.locker, err = t.global.lockerOn(t.store, replock.Options{
		TTL: t.flags.TTL, Look: t.flags.Look, Metadata: t.flags.Metadata, Fence: t.flags.Fence && t.mode == replock.Exclusive, Observe: t.observe,
	})
	if err != nil {
		return nil, err
	}
	take := t.locker.Shared
	if t.mode == replock.Exclusive {
		take = t.locker.Exclusive
	}
	lock, err := take(ctx, t.operation, replock.Wait(time.Duration(t.flags.Wait)))
	t.flush()
	var held *replock.HeldError
	if e := t.nested.Load(); e != nil && errors.Is(err, errNested) {
		return nil, t.held(&replock.HeldError{Mode: t.mode, Holders: e.Holders, Waited: e.Waited})
	}
	if errors.As(err, &held) {
		return nil, t.held(held)
	}
	return lock, err
}

func (t *taking) held(err *replock.HeldError) error {
	_, nested := t.ownOuter(err.Holders)
	return heldError{err, t.flags.HeldCode, nested, t.looked()}
}

// flush has all events told, unless nobody reads what is printed.
func (t *taking) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	t.locker.Flush(ctx)
}

// observe is told of the lock's events.
func (t *taking) observe(e replock.Event) {
	t.audit.event(e, t.flags.TTL)
	t.metrics.event(e)
	if e.Kind == replock.EventWaiting {
		if _, nested := t.ownOuter(e.Holders); nested && t.nested.CompareAndSwap(nil, &e) {
			t.cancel(errNested)
		}
	}
	t.show(e)
}
