package also

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// TestLostWhileOthersAreAcquired: a lock that is lost while the next one is acquired ends the
// acquire, whether a renewal has noticed it or not.
func TestLostWhileOthersAreAcquired(t *testing.T) {
	const took = 12 * time.Second
	for interval, look := range map[time.Duration]time.Duration{5 * time.Second: time.Minute, 20 * time.Second: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := leapclock.New()
			f := newFake(c)
			s := fakeSet(f, c, 0, "ab")
			s.look = look
			s.members[0].(*other).schedule.Interval = interval
			f.disturb(func(what, key string) error {
				if what == "try" && key == "b" {
					f.breakLock(t, "a")
					time.Sleep(took)
				}
				return nil
			})
			l, err := s.Acquire(t.Context(), (&record{}).observe)
			if l != nil || !errors.Is(err, replock.ErrLost) || !f.free(t, "b") {
				t.Errorf("renewed each %v: %v, %v", interval, l, err)
			}
		})
	}
}

// TestKnownHolderBehindASilentSystem: a silent system doesn't hide that another lock is held, so
// that no command runs beside its holder.
func TestKnownHolderBehindASilentSystem(t *testing.T) {
	for _, order := range []string{"abc", "cab", "bca"} { // a is silent, b held
		synctest.Test(t, func(t *testing.T) {
			c := leapclock.New()
			f := newFake(c)
			f.take(t, "b", time.Hour)
			f.disturb(silent("try", "a"))
			s := fakeSet(f, c, 0, order)
			l, err := s.Acquire(t.Context(), (&record{}).observe)
			if l != nil || !errors.Is(err, replock.ErrHeld) || s.failed.place().Name != "b" || !f.free(t, "c") {
				t.Errorf("%s: %v", order, err)
			}
			s = fakeSet(f, c, 0, "ac")
			if l, err := s.Acquire(t.Context(), (&record{}).observe); l != nil || !errors.Is(err, store.ErrUnreachable) || s.Answered() || !f.free(t, "c") {
				t.Errorf("nothing is held: %v", err)
			}
		})
	}
}

// TestSilentReleaseHoldsUpNoOther: the others are free soon, and none of them is lost
// meanwhile.
func TestSilentReleaseHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		s, r := fakeSet(f, c, 0, "abcd"), &record{}
		l, err := s.Acquire(t.Context(), r.observe)
		if err != nil {
			t.Fatal(err)
		}
		f.disturb(func(what, key string) error {
			if key == "c" || key == "d" {
				return locking.ErrUnreachable
			}
			return nil
		})
		time.Sleep(l.Deadline() - c.Elapsed() - patience/2)
		start := c.Elapsed()
		freed := make(chan time.Duration)
		go func() {
			for !f.free(t, "a") {
				time.Sleep(100 * time.Millisecond)
			}
			freed <- c.Elapsed() - start
		}()
		if err := l.Release(t.Context()); !errors.Is(err, locking.ErrUnreachable) {
			t.Error(err)
		}
		if took := <-freed; took > 3*patience || c.Elapsed()-start > maxTry+patience || len(r.of(replock.EventLost)) > 0 {
			t.Errorf("free after %v, all released after %v, lost %v", took, c.Elapsed()-start, r.of(replock.EventLost))
		}
	})
}

// TestTwoNamesOfOneLock: a set that is in its own way doesn't wait for itself.
func TestTwoNamesOfOneLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		s := fakeSet(f, c, replock.Forever, "aba")
		l, err := s.Acquire(t.Context(), (&record{}).observe)
		if l != nil || !errors.As(err, new(URLError)) || !f.free(t, "a") || !f.free(t, "b") {
			t.Errorf("%v, %v", l, err)
		}
	})
}

// TestLossEndsAResume: a lock that is lost for good while another is resumed ends that.
func TestLossEndsAResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(leapclock.New())
		l, _ := heldSet(t, f, "Bc")
		f.disturb(silent("renew", "B"))
		<-l.Context().Done()
		synctest.Wait()
		f.disturb(func(what, key string) error {
			if what == "resume" {
				f.breakLock(t, "c")
				time.Sleep(time.Minute)
			}
			return nil
		})
		again, err := l.Resume(t.Context())
		if lost := l.Lost(); again != nil || err == nil || lost == nil || !lost.Definite || lost.Key != "fake:c" {
			t.Errorf("%v, %v, lost %v", again, err, lost)
		}
		_ = l.Release(t.Context())
		if !f.free(t, "B") {
			t.Error("B is left")
		}
	})
}

// TestDefiniteLossIsNotResumed: a lock that is lost for good isn't even asked for.
func TestDefiniteLossIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(leapclock.New())
		l, _ := heldSet(t, f, "aB")
		f.breakLock(t, "B")
		<-l.Context().Done()
		synctest.Wait()
		if again, err := l.Resume(t.Context()); again != nil || !errors.Is(err, replock.ErrLost) || len(f.asked("resume")) > 0 {
			t.Errorf("%v, %v, asked %v", again, err, f.asked("resume"))
		}
		_ = l.Release(t.Context())
	})
}
