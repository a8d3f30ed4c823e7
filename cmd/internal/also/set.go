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
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// member acquires one lock of a set.
type member interface {
	place() session.Place
	// acquire tries once if wait is 0. It returns a replock.HeldError or a session.HeldError
	// if another holder has the lock.
	acquire(ctx context.Context, wait time.Duration, observe func(events.Event)) (*lease.Lease, error)
	flush(ctx context.Context)
	answered() bool
}

// Set acquires several locks, all or none. It is a session.Locker.
type Set struct {
	members []member // in the order in which they are tried
	wait    time.Duration
	settle  time.Duration
	look    time.Duration // the longest time between two looks at a lock
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
func (s *Set) Acquire(ctx context.Context, observe func(events.Event)) (*lease.Set, error) {
	start := s.clock.Elapsed()
	for first, n := s.members[0], 1; ; n++ {
		locks, refused, err := s.take(ctx, first, s.left(start), quiet(observe))
		if err == nil {
			s.held = true
			return s.settled(ctx, lease.Join(s.inOrder, locks...))
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
// and the lock is still held: one of the locks can have been lost while others were acquired.
func (s *Set) settled(ctx context.Context, lock *lease.Set) (*lease.Set, error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	looking, blink := context.WithCancel(ctx) // without a cause that looks like the loss of each lock
	defer blink()
	held := lock.Context()
	defer context.AfterFunc(held, func() {
		blink()
		cancel(context.Cause(held))
	})()
	if s.settle > 0 {
		_ = clock.Sleep(waiting, s.clock, s.settle)
	}
	if s.settle > 0 || s.clock.Elapsed()-lock.Seen().Elapsed > s.look {
		_ = lock.Check(looking) // the work that has ended can have removed a lock
	}
	if lost := lock.Lost(); lost != nil {
		cancel(lost.Err)
	}
	if waiting.Err() == nil {
		return lock, nil
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
// one first. After a silent system it asks the others, too: a command can run without its locks
// if a system is silent, but not beside a holder that another one knows.
func (s *Set) take(ctx context.Context, first member, wait time.Duration, observe func(events.Event)) (locks []*lease.Lease, refused member, err error) {
	locks = make([]*lease.Lease, len(s.members))
	var taken []*lease.Lease
	for n, m := range append([]member{first}, s.members...) {
		i := slices.Index(s.members, m)
		if n > 0 && m == first {
			continue
		}
		lock, failed := m.acquire(ctx, wait, observe)
		s.inOrder()
		wait = 0
		if failed == nil {
			locks[i], taken = lock, append(taken, lock)
			continue
		}
		if twice := s.twice(ctx, m, taken, failed); twice != nil {
			failed = twice
		}
		silent := errors.Is(failed, store.ErrUnreachable)
		if err == nil || !silent {
			refused, err = m, failed
		}
		if !silent {
			break
		}
	}
	if err != nil {
		if len(taken) > 0 {
			_ = lease.Join(s.inOrder, taken...).Release(context.Background()) // events report failures
		}
		return nil, refused, err
	}
	return locks, nil, nil
}

// twice returns an error if one of the locks that were taken is the one that was refused: two
// URLs can be one lock in ways that they don't show.
func (s *Set) twice(ctx context.Context, m member, taken []*lease.Lease, failed error) error {
	var held *replock.HeldError
	if !errors.As(failed, &held) {
		return nil
	}
	for _, l := range taken {
		for _, h := range held.Holders {
			if h.ID != "" && h.ID == revision(ctx, l) {
				return fault.New(fault.URL, "%s is the same lock as %s", m.place().Where(), l.About().Key)
			}
		}
	}
	return nil
}

// revision returns the id by which others see a lock.
func revision(ctx context.Context, l *lease.Lease) string {
	h, ok := l.Owner().(*held)
	if !ok {
		return l.About().ID
	}
	if info, err := h.Inspect(ctx); err == nil && info != nil {
		return info.ID
	}
	return ""
}

// inOrder waits until the events so far have been observed: those of one lock come before those of the next one.
func (s *Set) inOrder() {
	ctx, cancel := context.WithTimeout(context.Background(), lease.Patience)
	defer cancel()
	s.Flush(ctx)
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
