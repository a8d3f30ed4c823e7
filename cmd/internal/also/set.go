// Package also acquires the locks of --also: locks of other systems, and of further repositories.
//
// A Set acquires all its locks or none. It tries them in a fixed order, whatever the order in which the user names
// them. It holds no lock while it waits: it waits for the lock that was refused, and then tries the others. So two
// sets never wait for each other, and a set and another program never do either.
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
	flush(ctx context.Context) // as of session.Locker
	answered() bool            // as of session.Locker
}

// repository acquires a repository's lock.
type repository struct {
	*session.Repository
	at session.Place // zero for the first argument of NewSet
}

func (m *repository) place() session.Place      { return m.at }
func (m *repository) flush(ctx context.Context) { m.Flush(ctx) }
func (m *repository) answered() bool            { return m.Answered() }

func (m *repository) acquire(ctx context.Context, wait time.Duration, observe func(events.Event)) (*lease.Lease, error) {
	m.Wait = wait
	lock, err := m.Lease(ctx, func(e events.Event) {
		if m.at.URL != "" {
			e.Place, e.Event.Name = m.at.URL, m.at.Name
		}
		observe(e)
	})
	if err != nil && m.at.URL != "" {
		err = fault.Errorf("%s: %w", m.at.URL, err)
	}
	return lock, err
}

// Set acquires several locks, all or none. It is a session.Locker.
type Set struct {
	members []member // in the order in which they are tried
	wait    time.Duration
	settle  time.Duration
	look    time.Duration // the longest time between two looks at a lock
	clock   clock.Clock
	failed  member // the last one that was refused, or failed
	held    bool   // Acquire has held all locks
}

// NewSet returns the set of a repository's lock, unless first is nil, and of the targets, in the order of Parse.
// Connections last as long as this process.
func NewSet(first *session.Repository, targets []Target, r Request) *Set {
	s := &Set{wait: r.Wait, settle: r.Settle, look: r.Look, clock: clock.System{}}
	if first != nil {
		s.members = append(s.members, &repository{Repository: first})
	}
	for _, t := range targets {
		if t.Repository() {
			s.members = append(s.members, &repository{r.Repository(t.Place), t.Place})
		} else {
			s.members = append(s.members, newOther(t, r))
		}
	}
	return s
}

// Flush implements session.Locker.
func (s *Set) Flush(ctx context.Context) {
	for _, m := range s.members {
		m.flush(ctx)
	}
}

// Answered reports whether the system that ended Acquire has answered. If a lock was lost during settle, all
// systems have answered.
func (s *Set) Answered() bool { return s.held || s.failed != nil && s.failed.answered() }

// Acquire implements session.Locker.
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
		if n > 1 { // two sets that want the same locks must not stay in step
			pause := rand.N(min(time.Duration(n)*100*time.Millisecond, 2*time.Second))
			_ = clock.Sleep(ctx, s.clock, min(pause, s.left(start)))
		}
	}
}

// settled holds the locks for the time of --settle, so that older work can end. Then it returns the set, unless one
// of its locks was lost since its acquire.
func (s *Set) settled(ctx context.Context, lock *lease.Set) (*lease.Set, error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	looking, blink := context.WithCancel(ctx) // its cause must not look like the loss of each lock
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
		_ = lock.Check(looking) // the older work can have removed a lock
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

// left returns the rest of the wait.
func (s *Set) left(start time.Duration) time.Duration {
	if s.wait == replock.Forever {
		return s.wait
	}
	return max(s.wait-(s.clock.Elapsed()-start), 0)
}

// take acquires all locks. It can wait for first's lock, because it holds no other lock yet, and acquires the
// others without a wait. If a lock is refused, take releases the locks that it holds, the last one first. If a
// system is silent, take still asks the others: a command can run without its locks while a system is silent, but
// not if another system reports a holder.
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

// twice returns an error if one of the acquired locks is the refused one: two URLs can name one lock in
// ways that Parse doesn't see.
func (s *Set) twice(ctx context.Context, m member, taken []*lease.Lease, failed error) error {
	refusal, ok := errors.AsType[*replock.HeldError](failed)
	if !ok {
		return nil
	}
	for _, l := range taken {
		id := l.About().ID
		if h, ok := l.Owner().(*held); ok { // the refusal has the system's id
			id = ""
			if info, err := h.Inspect(ctx); err == nil && info != nil {
				id = info.ID
			}
		}
		if slices.ContainsFunc(refusal.Holders, func(h replock.Info) bool { return h.ID != "" && h.ID == id }) {
			return fault.New(fault.URL, "%s is the same lock as %s", m.place().Where(), l.About().Key)
		}
	}
	return nil
}

// inOrder waits until the events so far have been observed, so that the next lock's events come later.
func (s *Set) inOrder() {
	ctx, cancel := context.WithTimeout(context.Background(), lease.MaxDelay)
	defer cancel()
	s.Flush(ctx)
}

// quiet drops the events of a refusal, because report sends such an event when the wait is over.
func quiet(observe func(events.Event)) func(events.Event) {
	return func(e events.Event) {
		if e.Kind != replock.EventBlocked {
			observe(e)
		}
	}
}

// report sends the event of a refusal, and returns its error with the place of the lock.
func (s *Set) report(m member, err error, waited time.Duration, observe func(events.Event)) error {
	held, ok := errors.AsType[*replock.HeldError](err)
	if !ok {
		return err
	}
	at := m.place()
	if s.wait > 0 {
		held.Waited = waited
	}
	observe(events.Event{Place: at.URL, Event: replock.Event{
		Kind: replock.EventBlocked, Time: s.clock.Now(), Name: at.Name, Mode: held.Mode, Key: held.Holders[0].Key(),
		Holders: held.Holders, Waited: held.Waited, Err: held.Err,
	}})
	return session.HeldError{HeldError: held, Place: at}
}
