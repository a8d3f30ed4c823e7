package also

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/replock"
)

// stub is a member of a set that fails.
type stub struct {
	err error
	yes bool
}

func (s stub) place() session.Place  { return session.Place{} }
func (s stub) flush(context.Context) {}
func (s stub) answered() bool        { return s.yes }
func (s stub) acquire(context.Context, time.Duration, func(events.Event)) (session.Lock, error) {
	return nil, s.err
}

// TestAnsweredIsOfTheFailure: a set has an answer if the lock at which it failed has one. A
// set that was held has one, too.
func TestAnsweredIsOfTheFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		for _, yes := range []bool{true, false} {
			s := fakeSet(newFake(c), c, 0, "a")
			s.members = append(s.members, stub{errors.New("it failed"), yes}, stub{errors.New("not asked"), !yes})
			if s.Answered() {
				t.Error("before Acquire")
			}
			if _, err := s.Acquire(t.Context(), func(events.Event) {}); err == nil || err.Error() != "it failed" || s.Answered() != yes {
				t.Errorf("%v, answered %t", err, s.Answered())
			}
		}
		s := fakeSet(newFake(c), c, 0, "a")
		l, err := s.Acquire(t.Context(), func(events.Event) {})
		if err != nil || !s.Answered() {
			t.Errorf("held: %v, answered %t", err, s.Answered())
		}
		_ = l.Release(t.Context())
	})
}

// teaser is a member that can be had only while another can't: each round of a set fails.
type teaser struct{ url string }

func (m teaser) place() session.Place  { return session.Place{URL: m.url} }
func (m teaser) flush(context.Context) {}
func (m teaser) answered() bool        { return true }
func (m teaser) acquire(_ context.Context, wait time.Duration, observe func(events.Event)) (session.Lock, error) {
	if wait > 0 {
		return releasable{}, nil
	}
	observe(events.Event{Place: m.url, Event: replock.Event{Kind: replock.EventBlocked}})
	return nil, &replock.HeldError{Mode: replock.Shared, Holders: []replock.Info{{Keys: []string{"key"}}}}
}

// releasable is a lock that can be released.
type releasable struct{ stubLock }

func (releasable) Release(context.Context) error { return nil }

// TestPausesAreInTheWait: the pauses between the rounds of a set end with --wait, and the
// members' own refusals aren't reported beside the last.
func TestPausesAreInTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		const wait = 20 * time.Second
		s, r := &Set{members: []member{teaser{"a"}, teaser{"b"}}, wait: wait, clock: c}, &record{}
		lock, err := s.Acquire(t.Context(), r.observe)
		if lock != nil || !errors.Is(err, replock.ErrHeld) || c.Elapsed() != wait {
			t.Errorf("at %v: %v", c.Elapsed(), err)
		}
		if e := r.of(replock.EventBlocked); len(e) != 1 || e[0].Waited != wait || e[0].Mode != replock.Shared {
			t.Errorf("events: %+v", e)
		}
	})
}
