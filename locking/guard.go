package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
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
	g := &guard{Backend: b, clock: c, schedule: refresh.ForTTL(ttl).Every(ttl / 3), start: c.Elapsed()}
	acquiring, cancel := context.WithTimeout(ctx, g.schedule.Budget)
	defer cancel()
	h, ok, err := b.TryLock(acquiring, key, ttl)
	if !ok || err != nil {
		return false, err
	}
	g.handle = h
	if took := c.Elapsed() - g.start; took >= g.schedule.Deadline {
		return false, fault.Join(fmt.Errorf("lock %q: its acquisition took %v of its ttl of %v: choose a longer ttl", key, took, ttl), g.release(ctx))
	}
	return true, g.run(ctx, f)
}

// guard holds one lock for one function.
type guard struct {
	Backend
	clock    clock.Clock
	schedule refresh.Schedule
	start    time.Duration // when TryLock was called, on the clock's Elapsed
	handle   Handle
}

// run runs f and renews the lock meanwhile. Its deferred function runs even if f panics.
func (g *guard) run(ctx context.Context, f func(ctx context.Context) error) (err error) {
	inner, lose := context.WithCancelCause(ctx)
	renewing, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var loss error
	var renewal sync.WaitGroup
	refresher, ended := g.refresher(), make(chan struct{})
	renewal.Go(func() {
		defer close(ended)
		if err := refresher.Run(renewing); !errors.Is(err, errDone) {
			loss = g.lost(err)
			lose(loss)
		}
	})
	if w, ok := g.Backend.(Watcher); ok {
		renewal.Go(func() {
			select {
			case <-w.Watch(g.handle):
				_ = refresher.Now(renewing, ended)
			case <-ended:
			}
		})
	}
	defer func() {
		stop(errDone)
		renewal.Wait()
		lose(context.Canceled)
		released := g.release(ctx)
		if loss != nil && errors.Is(released, ErrLost) {
			released = nil // which is known
		}
		err = fault.Join(err, loss, released)
	}()
	return f(inner)
}

// errDone ends the renewals.
var errDone = errors.New("the function has returned")

func (g *guard) refresher() *refresh.Refresher {
	return refresh.New(refresh.Refresher{
		Schedule: g.schedule, Clock: g.clock, Start: g.start, Attempt: g.renew, Drain: g.schedule.Timeout,
		Failed:   func(int, bool, error) {},
		Extended: func(time.Duration) {},
		Early:    func(time.Duration) time.Duration { return 0 },
	})
}

func (g *guard) renew(ctx context.Context, _ bool) (refresh.Renewal, error) {
	ctx, cancel := context.WithTimeout(ctx, g.schedule.Timeout)
	defer cancel()
	sent := g.clock.Elapsed()
	err := g.Renew(ctx, g.handle)
	if errors.Is(err, ErrLost) {
		return refresh.Renewal{}, refresh.Stop(err)
	}
	if err != nil {
		return refresh.Renewal{}, err
	}
	return refresh.Renewal{Sent: sent}, nil
}

// lost returns an ErrLost.
func (g *guard) lost(err error) error {
	if errors.Is(err, ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %q: %w", ErrLost, g.handle.Key(), err)
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
