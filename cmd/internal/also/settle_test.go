package also

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/replock"
)

// TestSettle: all locks are held, and renewed, for the time of --settle before Acquire returns.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		s := fakeSet(f, c, 0, "ab")
		s.settle = 5 * time.Minute
		for at := time.Second; at < s.settle; at += 10 * time.Second {
			time.AfterFunc(at, func() {
				if f.free(t, "a") || f.free(t, "b") {
					t.Errorf("not held at %v", at)
				}
			})
		}
		l, err := s.Acquire(t.Context(), (&record{}).observe)
		if err != nil || c.Elapsed() != s.settle || len(f.asked("renew")) < 20 {
			t.Fatalf("at %v: %v, %d renewals", c.Elapsed(), err, len(f.asked("renew")))
		}
		_ = l.Release(t.Context())
	})
}

// TestSettleIsInterrupted: a signal during --settle gives the locks back.
func TestSettleIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		s := fakeSet(f, c, 0, "ab")
		s.settle = 5 * time.Minute
		why := errors.New("a signal")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(why) })
		l, err := s.Acquire(ctx, (&record{}).observe)
		if l != nil || !errors.Is(err, why) || c.Elapsed() != time.Minute || keys(f.asked("release")) != "ba" || !f.free(t, "a") || !f.free(t, "b") {
			t.Errorf("at %v: %v, %v", c.Elapsed(), err, f.asked("release"))
		}
	})
}

// TestSettleIsLost: the loss of a lock during --settle gives the others back. It is no silence
// in which the command could run.
func TestSettleIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		s := fakeSet(f, c, 0, "ab")
		s.settle = 5 * time.Minute
		time.AfterFunc(time.Minute, func() { f.breakLock(t, "a") })
		l, err := s.Acquire(t.Context(), (&record{}).observe)
		if l != nil || !errors.Is(err, replock.ErrLost) || c.Elapsed() > 90*time.Second || !f.free(t, "b") || !s.Answered() {
			t.Errorf("at %v: %v, answered %t", c.Elapsed(), err, s.Answered())
		}
	})
}

// TestSettleEndsWithALook: a lock that is removed during --settle is missed before Acquire
// returns, also if no renewal came in between.
func TestSettleEndsWithALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		s := fakeSet(f, c, 0, "ab")
		s.settle = 5 * time.Second
		time.AfterFunc(4*time.Second, func() { f.breakLock(t, "b") })
		l, err := s.Acquire(t.Context(), (&record{}).observe)
		if l != nil || !errors.Is(err, replock.ErrLost) || c.Elapsed() != s.settle || !f.free(t, "a") {
			t.Errorf("at %v: %v, %v", c.Elapsed(), l, err)
		}
	})
}
