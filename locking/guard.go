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

// Hint is how much a function needs to be alone. The zero Hint is none of them.
type Hint int

const (
	// RequireGlobal runs the function only with the lock.
	RequireGlobal Hint = iota + 1
	// PreferGlobal runs the function with the lock, or without it if there is no backend. A
	// backend that is broken is no missing one: the function doesn't run. For one caller at a
	// time in this process, at least, pass a memory.Backend in place of none.
	PreferGlobal
	// NodeLocal runs the function without a lock.
	NodeLocal
)

// Guard runs f while it holds the lock of a key, and returns when f has returned. It
// reports whether f ran. If another holder has the lock, f doesn't run, and that is no error.
//
// Guard renews the lock at each third of the ttl. The context of f ends with ctx and, with
// ErrLost as its cause, when the lock is lost: when a renewal returns ErrLost, or when eleven
// twelfths of the ttl have passed since the last renewal that succeeded was sent, including the
// time of a suspend. f must return then, because Guard can't end it. If the backend is a
// Watcher, Guard also renews at once when the backend notices a loss.
//
// The error joins those of f, of the loss, and of the release. It is an ErrLost if the lock was
// lost while f ran. If the lock can't be acquired or has no backend, f doesn't run. A nil
// Backend is none.
//
// Guard releases the lock even if ctx has ended or f panics. It can be called concurrently.
//
// The hints are those of bext's scheduler, which has the same rules: it skips the function if
// another holder has the lock or the backend is broken, whatever the hint, and falls back to no
// lock only if none is configured. Guard differs in three things. It returns the error of a
// broken backend, which the scheduler logs. It renews, where the scheduler relies on a ttl that
// is longer than f. And it goes on after a renewal that failed without ErrLost, because the lock
// lasts until its ttl is over. Neither calls Cleanup: a program does, at times.
func Guard(ctx context.Context, b Backend, hint Hint, key string, ttl time.Duration, f func(ctx context.Context) error) (ran bool, err error) {
	return GuardAt(ctx, clock.System{}, b, hint, key, ttl, f)
}

// GuardAt is Guard with another clock than the machine's.
func GuardAt(ctx context.Context, c Clock, b Backend, hint Hint, key string, ttl time.Duration, f func(ctx context.Context) error) (ran bool, err error) {
	switch {
	case hint == NodeLocal, hint == PreferGlobal && b == nil:
		return true, f(ctx)
	case hint != RequireGlobal && hint != PreferGlobal:
		return false, fmt.Errorf("lock %q: unknown hint %d", key, hint)
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
		return false, fault.Join(fmt.Errorf("lock %q: its acquisition took %v of its ttl of %v: choose a longer ttl", key, took, ttl), g.release(ctx))
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

// run runs f and renews the lock meanwhile. Its deferred function runs even if f panics.
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
			released = nil // which is known
		}
		err = fault.Join(err, loss, released)
	}()
	return f(held.Context())
}

// loss returns an ErrLost.
func (g *guard) loss(_ bool, err error) lease.Loss {
	switch {
	case err == nil:
		err = fmt.Errorf("%w: %q: %w", ErrLost, g.handle.Key(), refresh.ErrDeadline)
	case !errors.Is(err, ErrLost):
		err = fmt.Errorf("%w: %q: %w: %w", ErrLost, g.handle.Key(), refresh.ErrDeadline, err)
	}
	return lease.Loss{Err: err, Definite: true}
}

// release releases the lock in a context of its own.
func (g *guard) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.schedule.Budget)
	defer cancel()
	err := g.Release(ctx, g.handle)
	if err == nil || errors.Is(err, ErrLost) {
		return err
	}
	return fmt.Errorf("lock %q wasn't released: %w", g.handle.Key(), err)
}
