package locking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/refresh"
)

// Hint is how much a function depends on its lock. The zero Hint is invalid.
type Hint int

const (
	// RequireGlobal runs the function only with the lock.
	RequireGlobal Hint = iota + 1
	// PreferGlobal runs the function with the lock, or without a lock if the backend is nil. If the backend is broken,
	// the function doesn't run. With a memory.Backend instead of nil, the callers in this process still exclude each
	// other.
	PreferGlobal
	// NodeLocal runs the function without a lock.
	NodeLocal
)

// Guard runs f while it holds the lock of a key, and returns after f. It reports whether f ran. If another holder has
// the lock, f doesn't run, and Guard returns no error.
//
// Guard renews the lock after each third of the ttl. It releases the lock even if ctx has ended or f panics. If the
// backend is a Watcher, Guard also renews at once when the backend notices a loss. The context of f ends with ctx, and
// when the lock is lost; then its cause is ErrLost. The lock is lost when a renewal returns ErrLost, or when no renewal
// has succeeded for eleven twelfths of the ttl, suspends included. f must return when its context ends, because Guard
// can't end it.
//
// The error joins the errors of f, of the loss, and of the release. It is an ErrLost if the lock was lost while f ran.
//
// The hints come from bext's scheduler. That scheduler, too, runs f without a lock only if no backend is configured.
// But it only logs the error of a broken backend. It also renews no lock, so it needs a ttl longer than f.
//
// Guard can be called concurrently. It doesn't call Cleanup, so the program must call it from time to time.
func Guard(ctx context.Context, b Backend, hint Hint, key string, ttl time.Duration, f func(ctx context.Context) error) (ran bool, err error) {
	return guardAt(ctx, clock.System{}, b, hint, key, ttl, f)
}

func guardAt(ctx context.Context, c Clock, b Backend, hint Hint, key string, ttl time.Duration, f func(ctx context.Context) error) (ran bool, err error) {
	switch {
	case hint == NodeLocal, hint == PreferGlobal && b == nil:
		return true, f(ctx)
	case hint != RequireGlobal && hint != PreferGlobal:
		return false, fmt.Errorf("lock %q: unknown hint %d, the function wasn't run: use RequireGlobal, PreferGlobal or NodeLocal", key, hint)
	case b == nil:
		return false, fmt.Errorf("lock %q is required, and no backend is configured: configure one", key)
	case ttl <= 0:
		return false, fmt.Errorf("lock %q: the ttl must be positive, not %v", key, ttl)
	}
	g := &guard{Backend: b, clock: c, schedule: refresh.ForTTL(ttl).Every(ttl / 3)}
	began := clock.Read(c)
	acquiring, cancel := context.WithTimeout(ctx, g.schedule.Budget)
	defer cancel()
	h, ok, err := b.TryLock(acquiring, key, ttl)
	if !ok || err != nil {
		return false, err
	}
	g.handle = h
	if took := c.Elapsed() - began.Elapsed; took >= g.schedule.Deadline {
		return false, fault.Join(fmt.Errorf("lock %q took %v to acquire, almost its ttl of %v; the function wasn't run: choose a longer ttl", key, took, ttl), g.release(ctx))
	}
	return true, g.run(ctx, began, f)
}

// guard holds one lock for one function.
type guard struct {
	Backend
	clock    clock.Clock
	schedule refresh.Schedule
	handle   Handle
}

// run runs f, and renews the lock meanwhile. It releases the lock in a deferred call, because f can panic.
func (g *guard) run(ctx context.Context, began clock.Reading, f func(ctx context.Context) error) (err error) {
	held := lease.New(lease.Terms{
		Schedule: g.schedule, Clock: g.clock, Sent: began.Elapsed, Seen: began, Parent: ctx, Drain: g.schedule.Timeout,
		Renewal: func(ctx context.Context) error { return g.Renew(ctx, g.handle) }, Loss: g.loss,
	})
	if w, ok := g.Backend.(Watcher); ok {
		held.Gone = w.Watch(g.handle)
	}
	held.Begin()
	defer func() {
		held.Release()
		released := g.release(ctx)
		var loss error
		if lost := held.Lost(); lost != nil {
			loss = lost.Err
		}
		if loss != nil && errors.Is(released, ErrLost) {
			released = nil // the error has the loss already
		}
		err = fault.Join(err, loss, released)
	}()
	return f(held.Context())
}

// loss returns the error of a lost lock: err if it is an ErrLost, else ErrLost with the deadline.
func (g *guard) loss(_ bool, err error) lease.Loss {
	switch {
	case err == nil:
		err = fmt.Errorf("%w: %q: %w", ErrLost, g.handle.Key(), refresh.ErrDeadline)
	case !errors.Is(err, ErrLost):
		err = fmt.Errorf("%w: %q: %w: %w", ErrLost, g.handle.Key(), refresh.ErrDeadline, err)
	}
	return lease.Loss{Err: err, Definite: true}
}

// release releases the lock even if ctx has ended.
func (g *guard) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.schedule.Budget)
	defer cancel()
	err := g.Release(ctx, g.handle)
	if err == nil || errors.Is(err, ErrLost) {
		return err
	}
	return fmt.Errorf("lock %q wasn't released: %w", g.handle.Key(), err)
}
