package also

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// lease is the time from the send of a renewal to the deadline: 55/60 of the ttl.
const lease = 55 * time.Second

// TestRenewals: a lock is renewed at each third of the ttl, and its deadline counts from the
// send of the last renewal that was answered, not from the answer.
func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		f.disturb(func(what, _ string) error {
			if what != "release" {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		l, r := acquired(t, fakeOther(f, c, "k"))
		if l.Deadline() != lease || l.Seen().Elapsed != 0 {
			t.Errorf("acquired: deadline %v, seen %v", l.Deadline(), l.Seen())
		}
		time.Sleep(2*time.Minute + time.Second - c.Elapsed())
		var sent []time.Duration
		for _, c := range f.asked("renew") {
			sent = append(sent, c.at)
		}
		third := 20 * time.Second
		if want := []time.Duration{third, 2 * third, 3 * third, 4 * third, 5 * third, 6 * third}; !slices.Equal(sent, want) {
			t.Errorf("sent at %v", sent)
		}
		if l.Deadline() != 100*time.Second+lease || l.Seen().Elapsed != 100*time.Second {
			t.Errorf("while one is under way: deadline %v, seen %v", l.Deadline(), l.Seen())
		}
		time.Sleep(3 * time.Second)
		if l.Deadline() != 120*time.Second+lease || l.Seen().Elapsed != 120*time.Second {
			t.Errorf("deadline %v, seen %v", l.Deadline(), l.Seen())
		}
		if n := len(r.of(replock.EventRefreshed)); n != 6 {
			t.Errorf("%d renewals reported", n)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestLook: --look bounds the time between two renewals.
func TestLook(t *testing.T) {
	for look, want := range map[time.Duration]time.Duration{time.Second: time.Second, 20 * time.Second: 20 * time.Second, time.Minute: 20 * time.Second} {
		s := newOther(Lock{Backend: newFake(leapclock.New())}, session.Place{}, Request{TTL: time.Minute, Look: look}).schedule
		last := s.Interval + time.Duration(s.Failures)*s.Failure
		if s.Interval != want || s.Deadline-last > time.Duration(s.Failures) || last > s.Deadline {
			t.Errorf("--look %v: %+v", look, s)
		}
	}
}

// TestSilence: a lock that can't be renewed is lost at its deadline, and that is definite if
// its kind can't be resumed.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		l, r := acquired(t, fakeOther(f, c, "k"))
		time.Sleep(30 * time.Second)
		f.disturb(always("renew", fmt.Errorf("no answer: %w", locking.ErrUnreachable)))
		<-l.Context().Done()
		if at := c.Elapsed(); at != 20*time.Second+lease {
			t.Errorf("lost at %v", at)
		}
		lost := l.Lost()
		if lost == nil || !lost.Definite || !strings.Contains(lost.Error(), "can't be resumed") || lost.Key != "fake:k" {
			t.Fatalf("%v", lost)
		}
		if !errors.Is(context.Cause(l.Context()), replock.ErrLost) || !errors.Is(lost, locking.ErrUnreachable) {
			t.Errorf("cause: %v", context.Cause(l.Context()))
		}
		want := []replock.EventKind{
			replock.EventAcquired, replock.EventRefreshFailed, replock.EventRefreshFailed, replock.EventRefreshFailed,
			replock.EventGaveUp, replock.EventLost,
		}
		if got := r.kinds(); !slices.Equal(got, want) {
			t.Errorf("events: %v", got)
		}
		for _, e := range r.all {
			if e.Place != "fake:k" || e.Name != "k" || e.ID != l.ID() || e.Operation != "test" {
				t.Errorf("%s: %+v", e.Kind, e)
			}
		}
		if again, err := l.Resume(t.Context()); again != nil || !errors.Is(err, replock.ErrLost) {
			t.Errorf("resumed: %v, %v", again, err)
		}
		f.disturb(nil)
		if err := l.Release(t.Context()); err != nil || len(f.asked("release")) != 1 {
			t.Errorf("released: %v", err)
		}
	})
}

// TestErrLostIsDefinite: a backend that says that the lock is lost ends it at once, also one
// whose locks can be resumed.
func TestErrLostIsDefinite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		l, r := acquired(t, fakeOther(resumable{f}, c, "k"))
		f.breakLock(t, "k")
		if l.Lost() != nil {
			t.Error("lost before a look")
		}
		<-l.Context().Done()
		if lost := l.Lost(); lost == nil || !lost.Definite || c.Elapsed() != 20*time.Second || l.Key() != lost.Key {
			t.Errorf("at %v: %v", c.Elapsed(), lost)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("released: %v", err) // the loss is known
		}
		if got := r.kinds(); !slices.Equal(got, []replock.EventKind{replock.EventAcquired, replock.EventLost}) {
			t.Errorf("events: %v", got)
		}
	})
}

// TestCheck: a look renews, and reports the loss that it finds.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		l, _ := acquired(t, fakeOther(f, c, "k"))
		time.Sleep(5 * time.Second)
		if err := l.Check(t.Context()); err != nil || l.Deadline() != 5*time.Second+lease {
			t.Errorf("%v, deadline %v", err, l.Deadline())
		}
		f.disturb(always("renew", locking.ErrUnreachable))
		if err := l.Check(t.Context()); !errors.Is(err, locking.ErrUnreachable) || l.Lost() != nil {
			t.Errorf("silence: %v, %v", err, l.Lost())
		}
		f.disturb(nil)
		f.breakLock(t, "k")
		if err := l.Check(t.Context()); !errors.Is(err, replock.ErrLost) || l.Lost() == nil {
			t.Errorf("broken: %v, %v", err, l.Lost())
		}
		if err := l.Check(t.Context()); !errors.Is(err, replock.ErrLost) {
			t.Errorf("again: %v", err)
		}
		_ = l.Release(t.Context())
	})
}

// TestWatcher: a lock is renewed at once when the backend notices its end.
func TestWatcher(t *testing.T) {
	for _, really := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := leapclock.New()
			w := watched{newFake(c), make(chan struct{})}
			l, _ := acquired(t, fakeOther(w, c, "k"))
			time.Sleep(7 * time.Second)
			if really {
				w.breakLock(t, "k")
			}
			close(w.lost)
			synctest.Wait()
			if renewed := w.asked("renew"); len(renewed) != 1 || renewed[0].at != 7*time.Second || c.Elapsed() != 7*time.Second {
				t.Errorf("renewed: %v", renewed)
			}
			if lost := l.Lost(); (lost != nil) != really || really && !lost.Definite {
				t.Errorf("really %t: %v", really, lost)
			}
			_ = l.Release(t.Context())
		})
	}
}

// TestSuspend: the deadline counts the time of a suspend, and doesn't move by it.
func TestSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		l, _ := acquired(t, fakeOther(resumable{newFake(c)}, c, "k"))
		time.Sleep(time.Second)
		c.Leap.Add(int64(lease - 2*time.Second)) // a second before the deadline
		if l.Deadline() != lease {
			t.Errorf("deadline %v", l.Deadline())
		}
		time.Sleep(clock.Tick)
		synctest.Wait()
		if l.Lost() != nil || l.Deadline() <= lease {
			t.Errorf("lost: %v, deadline %v", l.Lost(), l.Deadline())
		}
		last := l.Deadline()
		c.Leap.Add(int64(2 * time.Minute))
		time.Sleep(clock.Tick)
		synctest.Wait()
		if lost := l.Lost(); lost == nil || lost.Definite || l.Deadline() != last {
			t.Errorf("lost: %v, deadline %v", lost, l.Deadline())
		}
		_ = l.Release(t.Context())
	})
}

// TestPartedClocks: a step of the wall clock is a reason to look at the lock at once.
func TestPartedClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		l, _ := acquired(t, fakeOther(f, c, "k"))
		time.Sleep(3 * time.Second)
		c.Step.Add(int64(time.Hour))
		time.Sleep(clock.Tick)
		synctest.Wait()
		if n := len(f.asked("renew")); n != 1 || clock.Read(c).Parted(l.Seen()) {
			t.Errorf("%d renewals, seen %v", n, l.Seen())
		}
		time.Sleep(5 * time.Second)
		if n := len(f.asked("renew")); n != 1 {
			t.Errorf("%d renewals after one step", n)
		}
		_ = l.Release(t.Context())
	})
}
