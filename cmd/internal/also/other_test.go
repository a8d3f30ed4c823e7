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
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/memory"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// lasts is the time from the send of a renewal to the deadline: 55/60 of the ttl.
const lasts = 55 * time.Second

// TestSilenceIsRetried: a request is sent again until the server answers, for no longer than maxTry.
func TestSilenceIsRetried(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.disturb(failing("try", "", locking.ErrUnreachable))
		time.AfterFunc(5*time.Second, func() { f.disturb(nil) })
		l, _ := acquired(t, f.other("k"))
		tries := f.asked("try")
		last := tries[len(tries)-1]
		assert.That(t, len(tries) >= 3 && l.Deadline() == last.at+lasts, "deadline %v after %v", l.Deadline(), tries)
		_ = l.Release(t.Context())

		f.disturb(failing("try", "", locking.ErrUnreachable))
		start := f.clock.Elapsed()
		lock, err := f.tries(t.Context(), "k", time.Hour)
		took := f.clock.Elapsed() - start
		assert.That(t, lock == nil && took <= maxTry && took >= maxTry/2, "given up after %v", took)
		assert.That(t, errors.Is(err, locking.ErrUnreachable) && errors.Is(err, store.ErrUnreachable) && strings.HasPrefix(err.Error(), "fake:k: "),
			"%v", err)
	})
}

// TestAnswersAreFinal: only a silent system is asked again.
func TestAnswersAreFinal(t *testing.T) {
	for _, answer := range []error{locking.ErrPermission, locking.ErrUnfit, locking.ErrKey, errors.New("another")} {
		inBubble(t, func(t *testing.T, f *fake) {
			f.disturb(failing("try", "", fmt.Errorf("answer: %w", answer)))
			lock, err := f.tries(t.Context(), "k", time.Hour)
			assert.That(t, lock == nil && errors.Is(err, answer) && !errors.Is(err, store.ErrUnreachable) && len(f.asked("try")) == 1 && f.clock.Elapsed() == 0,
				"%v: %v after %v", answer, err, f.calls)
		})
	}
}

// TestAnswered: a silence after an answer still counts as answered: another holder might have the lock.
func TestAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		o := f.other("k")
		f.disturb(failing("try", "", locking.ErrUnreachable))
		_, err := o.acquire(t.Context(), 0, (&record{}).observe)
		assert.That(t, err != nil && !o.answered(), "silence: %v, answered %t", err, o.answered())
		f.disturb(nil)
		f.take(t, "k", 24*time.Hour)
		time.AfterFunc(time.Minute, func() { f.disturb(failing("try", "", locking.ErrUnreachable)) })
		_, err = o.acquire(t.Context(), replock.Forever, (&record{}).observe)
		assert.That(t, errors.Is(err, locking.ErrUnreachable) && o.answered(), "silence after a refusal: %v, answered %t", err, o.answered())
	})
}

// TestRefusal: a lock that is held is tried once without --wait, and for no longer than --wait
// with it. One event reports the wait for a holder.
func TestRefusal(t *testing.T) {
	for _, wait := range []time.Duration{0, 10 * time.Second, time.Minute} {
		inBubble(t, func(t *testing.T, f *fake) {
			f.take(t, "k", 24*time.Hour)
			r := &record{}
			lock, err := f.other("k").acquire(t.Context(), wait, r.observe)
			var refused session.HeldError
			assert.Need(t, lock == nil && errors.As(err, &refused) && errors.Is(err, replock.ErrHeld), "%v, %v", lock, err)
			assert.That(t, f.clock.Elapsed() == wait && refused.Waited == wait && refused.Place.URL == "fake:k" && refused.Holders[0].TTL == 24*time.Hour,
				"after %v: %+v", f.clock.Elapsed(), refused.HeldError)
			n, waits := len(f.asked("try")), len(r.of(replock.EventWaiting))
			assert.That(t, (n == 1) == (wait == 0) && (waits == 1) == (wait > 0), "--wait %v: %d tries, %d events", wait, n, waits)
		})
	}
}

// TestSlowRefusal: a single try counts as a wait only if it took as long as half a pause between two tries.
func TestSlowRefusal(t *testing.T) {
	for slow, want := range map[time.Duration]time.Duration{poll/2 - 1: 0, poll / 2: poll / 2} {
		inBubble(t, func(t *testing.T, f *fake) {
			f.take(t, "k", 24*time.Hour)
			f.slow = slow
			_, err := f.tries(t.Context(), "k", 0)
			refused, ok := errors.AsType[session.HeldError](err)
			assert.That(t, ok && refused.Waited == want, "a try of %v: %v, waited %v", slow, err, refused.Waited)
		})
	}
}

// TestWaitEnds: a wait ends with its context, and returns its cause.
func TestWaitEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.take(t, "k", 24*time.Hour)
		why := errors.New("a signal")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(why) })
		_, err := f.tries(ctx, "k", replock.Forever)
		assert.That(t, errors.Is(err, why) && errors.Is(err, replock.ErrHeld) && f.clock.Elapsed() == 3*time.Second, "at %v: %v", f.clock.Elapsed(), err)
		late, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		_, err = f.tries(late, "k", replock.Forever)
		assert.That(t, errors.Is(err, replock.ErrHeld) && errors.Is(err, context.DeadlineExceeded), "%v", err)
		assert.That(t, len(f.asked("release")) == 0, "it released another's lock")
	})
}

// TestNextHolder: a wait reports each holder once, and ends when the lock is free.
func TestNextHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.take(t, "k", 10*time.Second)
		time.AfterFunc(10*time.Second, func() { f.take(t, "k", 10*time.Second) })
		r := &record{}
		_, err := f.other("k").acquire(t.Context(), replock.Forever, r.observe)
		now := f.clock.Elapsed()
		assert.That(t, err == nil && now >= 20*time.Second && now <= 22*time.Second && len(r.of(replock.EventWaiting)) == 2, "at %v: %v, %v", now, err, r.kinds())
	})
}

// TestFilesAreNotTimed: a lock of files is acquired, resumed and released even if that takes longer than a server has
// to answer.
func TestFilesAreNotTimed(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.slow = lasts * 4 / 5 // as a machine that stands still while the file settles
		o := f.other("k")
		lock, err := o.acquire(t.Context(), 0, (&record{}).observe)
		assert.That(t, lock == nil && errors.Is(err, context.DeadlineExceeded), "a server: %v, %v", lock, err)
		o.files = true
		l, _ := acquired(t, o)
		err = l.Release(t.Context())
		assert.That(t, err == nil && f.free(t, "k"), "%v", err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lock, err = o.acquire(ctx, 0, (&record{}).observe)
		assert.That(t, lock == nil && errors.Is(err, context.DeadlineExceeded), "the caller's end: %v, %v", lock, err)
	})
}

// TestSlowAcquire: a lock whose acquire has taken its whole ttl isn't held, and there is no event of it.
func TestSlowAcquire(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.disturb(func(what, _ string) error {
			if what == "try" {
				f.clock.Leap.Add(int64(lasts))
			}
			return nil
		})
		r := &record{}
		lock, err := f.other("k").acquire(t.Context(), 0, r.observe)
		assert.That(t, lock == nil && err != nil && strings.Contains(err.Error(), "--ttl") && !errors.Is(err, replock.ErrHeld) && f.free(t, "k"),
			"%v, %v", lock, err)
		synctest.Wait()
		got := r.kinds()
		assert.That(t, len(got) == 0, "events: %v", got)
	})
}

// failingInspector can't say who holds a lock.
type failingInspector struct{ *memory.Backend }

func (failingInspector) Inspect(context.Context, string) (*locking.Info, error) {
	return nil, errors.New("the table is gone")
}

// TestHolderUnknown: a refusal leaves out a holder that has just released the lock, or that can't be inspected.
func TestHolderUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.take(t, "k", time.Hour)
		o := f.other("k")
		o.Backend = struct{ locking.Backend }{f}
		_, err := o.acquire(t.Context(), 0, (&record{}).observe)
		assert.That(t, err != nil && err.Error() == "fake:k is held by a holder that doesn't say its name", "%v", err)
		o.Backend = failingInspector{f.Backend}
		_, err = o.acquire(t.Context(), 0, (&record{}).observe)
		var refused session.HeldError
		assert.That(t, errors.As(err, &refused) && refused.Holders[0].Why == "the table is gone", "%v", err)
	})
}

// TestRenewals: a lock is renewed at each third of the ttl, and its deadline counts from the
// send of the last renewal that was answered, not from the answer.
func TestRenewals(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.disturb(func(what, _ string) error {
			if what != "release" {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		l, r := acquired(t, f.other("k"))
		counts := func(from time.Duration) {
			t.Helper()
			assert.That(t, l.Deadline() == from+lasts && l.Seen().Elapsed == from,
				"at %v: deadline %v, seen %v", f.clock.Elapsed(), l.Deadline(), l.Seen())
		}
		counts(0)
		time.Sleep(2*time.Minute + time.Second - f.clock.Elapsed())
		var sent []time.Duration
		for _, c := range f.asked("renew") {
			sent = append(sent, c.at)
		}
		third := 20 * time.Second
		want := []time.Duration{third, 2 * third, 3 * third, 4 * third, 5 * third, 6 * third}
		assert.That(t, slices.Equal(sent, want), "sent at %v", sent)
		counts(5 * third) // while the last is under way
		time.Sleep(3 * time.Second)
		counts(6 * third)
		assert.Equal(t, len(r.of(replock.EventRefreshed)), 6)
		assert.Is(t, l.Release(t.Context()), nil)
	})
}

// TestLook: --look bounds the time between two renewals, and so do a third of the ttl and
// tower-fleet's specification.
func TestLook(t *testing.T) {
	for _, c := range []struct{ ttl, look, want time.Duration }{
		{time.Minute, time.Second, time.Second},
		{time.Minute, 20 * time.Second, 20 * time.Second},
		{time.Minute, time.Minute, 20 * time.Second},
		{time.Hour, time.Hour, 30 * time.Second},
	} {
		s := newOther(Target{}, Request{TTL: c.ttl, Look: c.look}).schedule
		last := s.Interval + time.Duration(s.Failures)*s.Failure
		assert.That(t, s.Interval == c.want && s.Deadline-last <= time.Duration(s.Failures) && last <= s.Deadline, "%+v: %+v", c, s)
	}
}

// loss returns the loss of a lock.
func loss(l interface{ Lost() *lease.Loss }) *replock.LostError {
	if lost := l.Lost(); lost != nil {
		return lost.Err.(*replock.LostError)
	}
	return nil
}

// TestSilence: a lock that can't be renewed is lost at its deadline, and that is definite if
// its kind can't be resumed.
func TestSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		l, r := acquired(t, f.other("k"))
		time.Sleep(30 * time.Second)
		f.disturb(failing("renew", "", fmt.Errorf("no answer: %w", locking.ErrUnreachable)))
		<-l.Context().Done()
		assert.Equal(t, f.clock.Elapsed(), 20*time.Second+lasts, "lost")
		lost := loss(l)
		assert.Need(t, lost != nil && lost.Definite && strings.Contains(lost.Error(), "can't be resumed") && lost.Key == "fake:k", "%v", lost)
		assert.That(t, errors.Is(context.Cause(l.Context()), replock.ErrLost) && errors.Is(lost, locking.ErrUnreachable),
			"cause: %v", context.Cause(l.Context()))
		want := []replock.EventKind{
			replock.EventAcquired, replock.EventRefreshFailed, replock.EventRefreshFailed, replock.EventRefreshFailed,
			replock.EventGaveUp, replock.EventLost,
		}
		assert.Equal(t, r.kinds(), want, "events")
		for _, e := range r.all {
			assert.That(t, e.Place == "fake:k" && e.Name == "k" && e.ID == l.About().ID && e.Operation == "test", "%s: %+v", e.Kind, e)
		}
		assert.Is(t, l.Resume(t.Context()), replock.ErrLost, "resumed")
		f.disturb(nil)
		err := l.Release(t.Context())
		assert.That(t, err == nil && len(f.asked("release")) == 1, "released: %v", err)
	})
}

// TestErrLostIsDefinite: ErrLost of a backend ends the lock at once, also if its locks can be resumed.
func TestErrLostIsDefinite(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		l, r := acquired(t, f.other("K"))
		f.breakLock(t, "K")
		assert.That(t, l.Lost() == nil, "lost before a look")
		<-l.Context().Done()
		lost := loss(l)
		assert.That(t, lost != nil && lost.Definite && f.clock.Elapsed() == 20*time.Second && l.About().Key == lost.Key,
			"at %v: %v", f.clock.Elapsed(), lost)
		assert.Is(t, l.Release(t.Context()), nil, "the loss is known")
		assert.Equal(t, r.kinds(), []replock.EventKind{replock.EventAcquired, replock.EventLost}, "events")
	})
}

// watched is a backend that notices losses.
type watched struct {
	*fake
	lost chan struct{}
}

func (w watched) Watch(locking.Handle) <-chan struct{} { return w.lost }

// TestWatcher: a lock is renewed at once when the backend notices its end.
func TestWatcher(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		w, o := watched{f, make(chan struct{})}, f.other("k")
		o.Backend = w
		l, _ := acquired(t, o)
		time.Sleep(7 * time.Second)
		f.breakLock(t, "k")
		close(w.lost)
		synctest.Wait()
		assert.That(t, loss(l) != nil && loss(l).Definite && f.clock.Elapsed() == 7*time.Second, "lost: %v", loss(l))
	})
}

// TestPartedClocks: a step of the wall clock is a reason to look at the lock at once.
func TestPartedClocks(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		l, _ := acquired(t, f.other("k"))
		time.Sleep(3 * time.Second)
		f.clock.Step.Add(int64(time.Hour))
		time.Sleep(clock.Tick)
		synctest.Wait()
		n := len(f.asked("renew"))
		assert.That(t, n == 1 && !clock.Read(f.clock).SteppedSince(l.Seen()), "%d renewals, seen %v", n, l.Seen())
		time.Sleep(5 * time.Second)
		assert.Equal(t, len(f.asked("renew")), 1)
	})
}

// TestResume: a resumed lock has a new id, and is renewed
// and released as before. A lock that is held isn't resumed.
func TestResume(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		l, r := acquired(t, f.other("K"))
		err := l.Resume(t.Context())
		assert.That(t, err != nil && len(f.asked("resume")) == 0, "while it is held: %v", err)
		f.disturb(failing("renew", "", locking.ErrUnreachable))
		<-l.Context().Done()
		f.disturb(nil)
		lost := loss(l)
		assert.Need(t, lost != nil && !lost.Definite, "%v", lost)
		at, id := f.clock.Elapsed(), l.About().ID
		err = l.Resume(t.Context())
		assert.OK(t, err)
		assert.That(t, l.Lost() == nil && l.Context().Err() == nil && l.About().ID != id && l.Deadline() == at+lasts && l.Seen().Elapsed == at,
			"%v, %v", l.Deadline(), l.Seen())
		e := r.of(replock.EventResumed)
		assert.That(t, len(e) == 1 && e[0].ID == l.About().ID, "%+v", e)
		time.Sleep(time.Minute)
		assert.That(t, l.Lost() == nil && !f.free(t, "K"), "lost: %v", l.Lost())
		err = l.Release(t.Context())
		assert.That(t, err == nil && f.free(t, "K"), "%v", err)
		got := r.kinds()
		assert.That(t, slices.Equal(got[len(got)-3:], []replock.EventKind{replock.EventLost, replock.EventResumed, replock.EventReleased}),
			"events: %v", got)
	})
}

// TestReleaseFails: a release is tried again while the server is silent, and reported if it
// fails. The lock is not held afterwards.
func TestReleaseFails(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		l, r := acquired(t, f.other("k"))
		time.AfterFunc(5*time.Second, func() { f.disturb(nil) })
		f.disturb(failing("release", "", locking.ErrUnreachable))
		err := l.Release(t.Context())
		assert.That(t, err == nil && f.free(t, "k") && len(f.asked("release")) >= 2, "%v after %d tries", err, len(f.asked("release")))
		assert.Equal(t, len(r.of(replock.EventReleased)), 1)

		l, r = acquired(t, f.other("k"))
		f.disturb(failing("release", "", locking.ErrPermission))
		err = l.Release(t.Context())
		assert.That(t, errors.Is(err, locking.ErrPermission) && l.Context().Err() != nil, "%v %v", err, l.Context().Err())
		e := r.of(replock.EventReleaseFailed)
		assert.That(t, len(e) == 1 && e[0].Ended && errors.Is(e[0].Err, locking.ErrPermission) && len(r.of(replock.EventReleased)) == 0, "%+v", r.kinds())
	})
}

// TestReleaseOfABrokenLock: the release of a lock that was broken since the last look reports the loss.
func TestReleaseOfABrokenLock(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		l, r := acquired(t, f.other("k"))
		f.breakLock(t, "k")
		assert.Is(t, l.Release(t.Context()), replock.ErrLost)
		assert.Equal(t, r.kinds(), []replock.EventKind{replock.EventAcquired, replock.EventLost})
		assert.That(t, l.Lost() != nil && l.Lost().Definite, "lost: %v", l.Lost())
	})
}
