package also

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/internal/retry"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// other acquires one lock of another system.
type other struct {
	Lock
	at        session.Place
	operation string
	ttl       time.Duration
	clock     clock.Clock
	schedule  refresh.Schedule
	resumer   locking.Resumer // nil: its locks can't be resumed
	heard     atomic.Bool     // the system has answered
}

// newOther doesn't ask the other system anything.
func newOther(l Lock, at session.Place, r Request) *other {
	o := &other{Lock: l, at: at, operation: r.Operation, ttl: r.TTL, clock: clock.System{}}
	o.schedule = refresh.ForTTL(r.TTL).Every(min(r.TTL/3, r.Look, maxInterval)) // a renewal is the look, too
	o.resumer, _ = l.Backend.(locking.Resumer)
	return o
}

// maxInterval is the longest interval of heartbeats that tower-fleet allows (section 5.2).
const maxInterval = 30 * time.Second

func (o *other) place() session.Place { return o.at }

func (o *other) flush(context.Context) {} // observe has got all events

// answered reports whether the system has answered a request to lock: another holder can have
// the lock then, though the system was silent since.
func (o *other) answered() bool { return o.heard.Load() }

// poll is the pause between two tries while the lock is held.
const poll = time.Second

// acquire tries until the lock is held by us, or wait is over.
func (o *other) acquire(ctx context.Context, wait time.Duration, observe func(events.Event)) (*lease.Lease, error) {
	start, last, observe := o.clock.Elapsed(), "", o.recorded(observe)
	for {
		lock, err := o.tryLock(ctx, observe)
		if lock != nil || err != nil {
			return lock, err
		}
		waited := o.clock.Elapsed() - start
		info := o.holder(ctx)
		if wait == 0 || wait != replock.Forever && waited >= wait {
			return nil, o.refused(info, waited, nil)
		}
		if who := info.ID + info.Holder; who != last {
			e := o.event(replock.EventWaiting)
			e.Holders, e.Waited, last = []replock.Info{info}, waited, who
			observe(e)
		}
		pause := poll/2 + rand.N(poll)
		if wait != replock.Forever {
			pause = min(pause, wait-waited)
		}
		if clock.Sleep(ctx, o.clock, pause) != nil {
			return nil, o.refused(info, o.clock.Elapsed()-start, context.Cause(ctx))
		}
	}
}

// specified are the events that the records of a system's own specification have.
var specified = []replock.EventKind{replock.EventAcquired, replock.EventGaveUp, replock.EventReleased, replock.EventReleaseFailed}

// recorded passes the records of the system's own specification to observe, too.
func (o *other) recorded(observe func(events.Event)) func(events.Event) {
	if o.listen == nil {
		return observe
	}
	o.listen(func(record any) { observe(events.Event{Place: o.at.URL, Record: record}) })
	return func(e events.Event) {
		e.Recorded = slices.Contains(specified, e.Kind)
		observe(e)
	}
}

// tryLock returns nil if another holder has the lock.
func (o *other) tryLock(ctx context.Context, observe func(events.Event)) (*lease.Lease, error) {
	var began clock.Reading
	var handle locking.Handle
	ok := false
	err := o.try(ctx, func(ctx context.Context) (err error) {
		began = clock.Read(o.clock)
		handle, ok, err = o.Backend.TryLock(ctx, o.Key, o.ttl)
		if !errors.Is(err, locking.ErrUnreachable) {
			o.heard.Store(true)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.at.URL, err)
	}
	if !ok {
		return nil, nil
	}
	if took := o.clock.Elapsed() - began.Elapsed; took >= o.schedule.Deadline {
		err := fmt.Errorf("%s: to acquire it took longer than its ttl of %v: choose a longer --ttl", o.at.URL, o.ttl)
		if failed := o.free(handle); failed != nil && !errors.Is(failed, locking.ErrLost) {
			err = fmt.Errorf("%w; and it could not be released: %w", err, failed)
		}
		return nil, err
	}
	lock := o.hold(handle, began, observe)
	lock.tell(replock.EventAcquired, nil)
	return lease.Hold(lock), nil
}

// maxTry bounds try for a long ttl: a person must learn within 15 s that a server is silent.
const maxTry = 15 * time.Second

// try sends a request again until the system answers. A short ttl leaves it half of that. For
// files there is nobody to be silent: to acquire one of their locks takes a second or two in which
// others are watched, and a machine that stands still meanwhile must not end it.
func (o *other) try(ctx context.Context, send func(context.Context) error) error {
	if o.files {
		return send(ctx)
	}
	budget := max(o.schedule.Budget, min(o.schedule.Deadline/2, maxTry))
	_, err := retry.Do(ctx, retry.Policy{
		Clock: o.clock, Budget: budget, Timeout: budget,
		Permanent: func(err error) bool { return !errors.Is(err, locking.ErrUnreachable) },
	}, func(timeout time.Duration) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return struct{}{}, send(ctx)
	})
	return err
}

// free releases the lock of a handle, whatever has ended.
func (o *other) free(h locking.Handle) error {
	return o.try(context.Background(), func(ctx context.Context) error { return o.Backend.Release(ctx, h) })
}

// holder describes who has the lock, as far as can be found out.
func (o *other) holder(ctx context.Context) replock.Info {
	found, err := o.Inspect(ctx)
	if found != nil {
		return *found
	}
	unknown := replock.Info{Mode: replock.Exclusive, Keys: []string{o.at.URL}}
	if err != nil { // or it has been released since
		unknown.Why = plain(err)
	}
	return unknown
}

// refused is the error for a lock that another holder has.
func (o *other) refused(info replock.Info, waited time.Duration, why error) error {
	if waited < poll/2 {
		waited = 0 // one try
	}
	return session.HeldError{Place: o.at, HeldError: &replock.HeldError{
		Mode: replock.Exclusive, Holders: []replock.Info{info}, Waited: waited, Err: why,
	}}
}

func (o *other) event(kind replock.EventKind) events.Event {
	return events.Event{Place: o.at.URL, TTL: o.ttl, Event: replock.Event{
		Kind: kind, Time: o.clock.Now(), Name: o.at.Name, Mode: replock.Exclusive, Operation: o.operation, Key: o.at.URL,
	}}
}

// plain is the text of an error without that of a sentinel that the message around it has.
func plain(err error) string {
	return cmp.Or(strings.TrimPrefix(err.Error(), locking.ErrLost.Error()+": "), err.Error())
}
