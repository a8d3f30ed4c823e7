package also

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/internal/retry"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// other acquires one lock of another system. It opens the system at the first try, so that an error of
// opening is an error of the acquire.
type other struct {
	Lock
	request  Request
	clock    clock.Clock
	schedule refresh.Schedule
	heard    atomic.Bool // the system has answered
}

func newOther(t Target, r Request) *other {
	r.TTL = t.TTL(r)
	o := &other{Lock: Lock{Target: t}, request: r, clock: clock.System{}}
	o.schedule = refresh.ForTTL(r.TTL).Every(min(r.TTL/3, r.Look, maxInterval)) // a renewal is a look, too
	return o
}

// maxInterval is the longest interval of heartbeats that tower-fleet allows (section 5.2).
const maxInterval = 30 * time.Second

func (o *other) place() session.Place { return o.Place }

func (o *other) flush(context.Context) {} // observe gets events at once

// answered reports whether the system has answered a request to lock. Then another holder can have
// the lock, even if the system has been silent since.
func (o *other) answered() bool { return o.heard.Load() }

func (o *other) open(observe func(events.Event)) error {
	r := o.request
	r.created = func(string) { observe(o.event(events.DirectoryCreated)) }
	r.replaced = func(stale *locking.Info) {
		e := o.event(replock.EventReaped)
		e.Holders = []replock.Info{o.info(stale)}
		observe(e)
	}
	r.record = func(record any) { observe(events.Event{Place: o.Place.URL, Record: record}) }
	l, err := o.Open(r)
	if err != nil {
		return err
	}
	if exposed(l.secret) {
		observe(o.event(events.PasswordExposed))
	}
	o.Lock = l
	return nil
}

// poll is the pause between two tries while the lock is held.
const poll = time.Second

// acquire tries until it holds the lock, or wait is over.
func (o *other) acquire(ctx context.Context, wait time.Duration, observe func(events.Event)) (*lease.Lease, error) {
	if o.Backend == nil {
		if err := o.open(observe); err != nil {
			return nil, err
		}
	}
	start, last := o.clock.Elapsed(), ""
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

// tryLock returns no lease and no error if another holder has the lock.
func (o *other) tryLock(ctx context.Context, observe func(events.Event)) (*lease.Lease, error) {
	var began clock.Reading
	var handle locking.Handle
	ok := false
	err := o.try(ctx, func(ctx context.Context) (err error) {
		began = clock.Read(o.clock)
		handle, ok, err = o.Backend.TryLock(ctx, o.Key, o.request.TTL)
		if !errors.Is(err, locking.ErrUnreachable) {
			o.heard.Store(true)
		}
		return err
	})
	if err != nil {
		return nil, fault.Errorf("%s: %w", o.Place.URL, err)
	}
	if !ok {
		return nil, nil
	}
	if took := o.clock.Elapsed() - began.Elapsed; took >= o.schedule.Deadline {
		err := fmt.Errorf("%s: acquiring it took longer than its ttl of %v: choose a longer --ttl", o.Place.URL, o.request.TTL)
		if failed := o.free(handle); failed != nil && !errors.Is(failed, locking.ErrLost) {
			err = fmt.Errorf("%w; and it could not be released: %w", err, failed)
		}
		return nil, err
	}
	lock := o.hold(handle, began, observe)
	lock.tell(replock.EventAcquired, 0, nil)
	return lease.Hold(lock), nil
}

// maxTry bounds try, because a person must learn within 15 s that a server is silent.
const maxTry = 15 * time.Second

// try sends a request again until the system answers, for half of the ttl or maxTry at most. A backend that keeps its
// locks in files has no such bound: its acquire takes a second or two, and must not fail if the machine stands still
// meanwhile.
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

// free releases the lock of a handle, even after the end of every context.
func (o *other) free(h locking.Handle) error {
	return o.try(context.Background(), func(ctx context.Context) error { return o.Backend.Release(ctx, h) })
}

// holder describes the lock's holder, as far as the system knows it.
func (o *other) holder(ctx context.Context) replock.Info {
	found, err := o.Inspect(ctx)
	if found != nil {
		return *found
	}
	unknown := replock.Info{Mode: replock.Exclusive, Keys: []string{o.Place.URL}}
	if err != nil { // else the lock was just released
		unknown.Why = err.Error()
	}
	return unknown
}

// refused returns the error for a lock that another holder has.
func (o *other) refused(info replock.Info, waited time.Duration, why error) error {
	if waited < poll/2 {
		waited = 0 // a single try is no wait
	}
	return session.HeldError{Place: o.Place, HeldError: &replock.HeldError{
		Mode: replock.Exclusive, Holders: []replock.Info{info}, Waited: waited, Err: why,
	}}
}

// finisher is a backend that stores the result of the work. It also records the events of a lock, as its own
// specification demands.
type finisher interface{ finish(success bool) }

// specified are the events that a finisher records itself.
var specified = []replock.EventKind{replock.EventAcquired, replock.EventGaveUp, replock.EventReleased, replock.EventReleaseFailed}

func (o *other) event(kind replock.EventKind) events.Event {
	_, records := o.Backend.(finisher)
	return events.Event{
		Place: o.Place.URL, TTL: o.request.TTL, Recorded: records && slices.Contains(specified, kind), Event: replock.Event{
			Kind: kind, Time: o.clock.Now(), Name: o.Place.Name, Mode: replock.Exclusive, Operation: o.request.Operation, Key: o.Place.URL,
		},
	}
}
