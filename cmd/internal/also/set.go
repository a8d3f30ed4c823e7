package also

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/replock"
)

// member acquires one lock of a set.
type member interface {
	place() session.Place
	// acquire tries once if wait is 0. It returns a replock.HeldError or a session.HeldError
	// if another holder has the lock.
	acquire(ctx context.Context, wait time.Duration, observe func(events.Event)) (session.Lock, error)
	flush(ctx context.Context)
	answered() bool
}

// Set acquires several locks, all or none. It is a session.Locker.
type Set struct {
	members []member // in the order in which they are tried
	wait    time.Duration
	settle  time.Duration
	clock   clock.Clock
	failed  member // the one that was refused, or failed, last
	held    bool   // Acquire has held all locks
}

// Flush waits until observe has got all events.
func (s *Set) Flush(ctx context.Context) {
	for _, m := range s.members {
		m.flush(ctx)
	}
}

// Answered reports whether the system that ended Acquire has answered. All have if a lock was
// lost in the time of settle.
func (s *Set) Answered() bool { return s.held || s.failed != nil && s.failed.answered() }

// Acquire is session.Locker's.
func (s *Set) Acquire(ctx context.Context, observe func(events.Event)) (session.Lock, error) {
	start := s.clock.Elapsed()
	for first, n := s.members[0], 1; ; n++ {
		locks, refused, err := s.take(ctx, first, s.left(start), quiet(observe))
		if err == nil {
			s.held = true
			return s.settled(ctx, newSetLock(locks))
		}
		first, s.failed = refused, refused
		if !errors.Is(err, replock.ErrHeld) || s.left(start) == 0 || ctx.Err() != nil {
			return nil, s.report(refused, err, s.clock.Elapsed()-start, observe)
		}
		if n > 1 { // a set that wants the same must not do the same at the same time
			pause := rand.N(min(time.Duration(n)*100*time.Millisecond, 2*time.Second))
			_ = clock.Sleep(ctx, s.clock, min(pause, s.left(start)))
		}
	}
}

// settled returns the lock when work that had begun before it was held has had its time to end,
// and the lock is still held.
func (s *Set) settled(ctx context.Context, lock *setLock) (session.Lock, error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })()
	if s.settle == 0 {
		return lock, nil
	}
	if clock.Sleep(waiting, s.clock, s.settle) == nil {
		// The work that has ended can have removed a lock, and no renewal has noticed it yet.
		_ = lock.Check(waiting)
		if lock.Lost() == nil && waiting.Err() == nil {
			return lock, nil
		}
		if lost := lock.Lost(); lost != nil {
			cancel(lost)
		}
	}
	_ = lock.Release(context.Background())
	return nil, context.Cause(waiting)
}

// left returns how much of the wait is left.
func (s *Set) left(start time.Duration) time.Duration {
	if s.wait == replock.Forever {
		return s.wait
	}
	return max(s.wait-(s.clock.Elapsed()-start), 0)
}

// take acquires all locks: at first one, for which it can wait because it holds no other, and
// then the others, without waiting. If one is refused it releases those that it has, the last
// one first.
func (s *Set) take(ctx context.Context, first member, wait time.Duration, observe func(events.Event)) (locks []session.Lock, refused member, err error) {
	locks = make([]session.Lock, len(s.members))
	var taken []session.Lock
	for _, m := range append([]member{first}, s.members...) {
		i := slices.Index(s.members, m)
		if locks[i] != nil {
			continue // it was the first
		}
		lock, err := m.acquire(ctx, wait, observe)
		if err != nil {
			for _, l := range slices.Backward(taken) {
				_ = l.Release(context.Background()) // an event reports a failure
			}
			return nil, m, err
		}
		locks[i], taken, wait = lock, append(taken, lock), 0
	}
	return locks, nil, nil
}

// quiet drops the events of a refusal: the wait can go on, and report says how it ended.
func quiet(observe func(events.Event)) func(events.Event) {
	return func(e events.Event) {
		if e.Kind != replock.EventBlocked {
			observe(e)
		}
	}
}

// report returns the error of a refusal with the place of its lock, after its event.
func (s *Set) report(m member, err error, waited time.Duration, observe func(events.Event)) error {
	at, held := m.place(), (*replock.HeldError)(nil)
	if !errors.As(err, &held) {
		return err
	}
	if s.wait > 0 {
		held.Waited = waited
	}
	observe(events.Event{Place: at.String(), Event: replock.Event{
		Kind: replock.EventBlocked, Time: s.clock.Now(), Name: at.Name, Mode: held.Mode, Key: held.Holders[0].Key(),
		Holders: held.Holders, Waited: held.Waited, Err: held.Err,
	}})
	return session.HeldError{HeldError: held, Place: at}
}
