package also

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/memory"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// TestSilenceIsRetried: a request is sent again until the server answers, for no longer than maxTry.
func TestSilenceIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		f.disturb(always("try", locking.ErrUnreachable))
		time.AfterFunc(5*time.Second, func() { f.disturb(nil) })
		o := fakeOther(f, c, "k")
		l, _ := acquired(t, o)
		tries := f.asked("try")
		if last := tries[len(tries)-1]; len(tries) < 3 || l.Deadline() != last.at+lease {
			t.Errorf("deadline %v after %v", l.Deadline(), tries)
		}
		_ = l.Release(t.Context())

		f.disturb(always("try", locking.ErrUnreachable))
		start := c.Elapsed()
		lock, err := o.acquire(t.Context(), time.Hour, (&record{}).observe)
		if took := c.Elapsed() - start; lock != nil || took > maxTry || took < maxTry/2 {
			t.Errorf("given up after %v", took)
		}
		if !errors.Is(err, locking.ErrUnreachable) || !errors.Is(err, store.ErrUnreachable) || !strings.HasPrefix(err.Error(), "fake:k: ") {
			t.Errorf("%v", err)
		}
	})
}

// TestAnswersAreFinal: an answer that isn't silence isn't asked for again.
func TestAnswersAreFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, answer := range []error{locking.ErrPermission, locking.ErrUnfit, locking.ErrKey, errors.New("another")} {
			c := leapclock.New()
			f := newFake(c)
			f.disturb(always("try", fmt.Errorf("answer: %w", answer)))
			lock, err := fakeOther(f, c, "k").acquire(t.Context(), time.Hour, (&record{}).observe)
			if lock != nil || !errors.Is(err, answer) || errors.Is(err, store.ErrUnreachable) || len(f.asked("try")) != 1 || c.Elapsed() > 0 {
				t.Errorf("%v: %v after %v", answer, err, f.asked("try"))
			}
		}
	})
}

// TestAnswered: after an answer a silence is no reason to run without the lock: another holder
// has it, perhaps.
func TestAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		o := fakeOther(f, c, "k")
		f.disturb(always("try", locking.ErrUnreachable))
		if _, err := o.acquire(t.Context(), 0, (&record{}).observe); err == nil || o.answered() {
			t.Errorf("silence: %v, answered %t", err, o.answered())
		}
		f.disturb(nil)
		f.take(t, "k", 24*time.Hour)
		time.AfterFunc(time.Minute, func() { f.disturb(always("try", locking.ErrUnreachable)) })
		if _, err := o.acquire(t.Context(), replock.Forever, (&record{}).observe); !errors.Is(err, locking.ErrUnreachable) || !o.answered() {
			t.Errorf("silence after a refusal: %v, answered %t", err, o.answered())
		}
	})
}

// TestRefusal: a lock that is held is tried once without --wait, and for no longer than --wait
// with it. One event reports the wait for a holder.
func TestRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		f.take(t, "k", 24*time.Hour)
		for _, wait := range []time.Duration{0, 10 * time.Second, time.Minute} {
			start, r, tried := c.Elapsed(), &record{}, len(f.asked("try"))
			lock, err := fakeOther(f, c, "k").acquire(t.Context(), wait, r.observe)
			var refused session.HeldError
			if lock != nil || !errors.As(err, &refused) || !errors.Is(err, replock.ErrHeld) {
				t.Fatalf("%v, %v", lock, err)
			}
			if c.Elapsed()-start != wait || refused.Waited != wait || refused.Place.URL != "fake:k" || refused.Holders[0].TTL != 24*time.Hour {
				t.Errorf("after %v: %+v", c.Elapsed()-start, refused.HeldError)
			}
			if n, waits := len(f.asked("try"))-tried, len(r.of(replock.EventWaiting)); (n == 1) != (wait == 0) || (waits == 1) != (wait > 0) {
				t.Errorf("--wait %v: %d tries, %d events", wait, n, waits)
			}
		}
	})
}

// TestWaitEnds: a wait ends with its context, for the reason that this has.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		f.take(t, "k", 24*time.Hour)
		why := errors.New("a signal")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(why) })
		if _, err := fakeOther(f, c, "k").acquire(ctx, replock.Forever, (&record{}).observe); !errors.Is(err, why) || !errors.Is(err, replock.ErrHeld) || c.Elapsed() != 3*time.Second {
			t.Errorf("at %v: %v", c.Elapsed(), err)
		}
		late, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if _, err := fakeOther(f, c, "k").acquire(late, replock.Forever, (&record{}).observe); !errors.Is(err, replock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if len(f.asked("release")) > 0 {
			t.Error("it released another's lock")
		}
	})
}

// TestNextHolder: each holder that a wait meets is reported once, and the wait ends when the
// lock is free.
func TestNextHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		f.take(t, "k", 10*time.Second)
		time.AfterFunc(10*time.Second, func() { f.take(t, "k", 10*time.Second) })
		r := &record{}
		l, err := fakeOther(f, c, "k").acquire(t.Context(), replock.Forever, r.observe)
		if err != nil || c.Elapsed() < 20*time.Second || c.Elapsed() > 22*time.Second || len(r.of(replock.EventWaiting)) != 2 {
			t.Fatalf("at %v: %v, %v", c.Elapsed(), err, r.kinds())
		}
		_ = l.Release(t.Context())
	})
}

// TestFilesAreNotTimed: a lock of files is acquired, resumed and released however long that takes
// beside the time that a server has to answer.
func TestFilesAreNotTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		f.slow = lease * 4 / 5 // as a machine that stands still while the file settles
		o := fakeOther(f, c, "k")
		if lock, err := o.acquire(t.Context(), 0, (&record{}).observe); lock != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a server: %v, %v", lock, err)
		}
		o.files = true
		l, _ := acquired(t, o)
		if err := l.Release(t.Context()); err != nil || !f.free(t, "k") {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if lock, err := o.acquire(ctx, 0, (&record{}).observe); lock != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's end: %v, %v", lock, err)
		}
	})
}

// TestSlowAcquire: a lock whose acquisition has taken its ttl isn't held, and no event says so.
func TestSlowAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		f.disturb(func(what, _ string) error {
			if what == "try" {
				c.Leap.Add(int64(lease))
			}
			return nil
		})
		r := &record{}
		lock, err := fakeOther(f, c, "k").acquire(t.Context(), 0, r.observe)
		if lock != nil || err == nil || !strings.Contains(err.Error(), "--ttl") || errors.Is(err, replock.ErrHeld) || !f.free(t, "k") {
			t.Errorf("%v, %v", lock, err)
		}
		synctest.Wait()
		if got := r.kinds(); len(got) > 0 {
			t.Errorf("events: %v", got)
		}
	})
}

// TestHolderUnknown: a refusal says nothing about a holder that has gone since, or can't be
// asked for.
func TestHolderUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		f.take(t, "k", time.Hour)
		blind := struct{ locking.Backend }{f}
		_, err := fakeOther(blind, c, "k").acquire(t.Context(), 0, (&record{}).observe)
		if err == nil || err.Error() != "fake:k is held by a holder that doesn't say its name" {
			t.Errorf("%v", err)
		}
		failing := failingInspector{f.Backend, errors.New("the table is gone")}
		_, err = fakeOther(failing, c, "k").acquire(t.Context(), 0, (&record{}).observe)
		var refused session.HeldError
		if !errors.As(err, &refused) || refused.Holders[0].Why != "the table is gone" {
			t.Errorf("%v", err)
		}
	})
}

type failingInspector struct {
	*memory.Backend
	err error
}

func (f failingInspector) Inspect(context.Context, string) (*locking.Info, error) { return nil, f.err }
