package also

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// stubLock is a lock that shows what a test sets.
type stubLock struct {
	session.Lock
	deadline time.Duration
	seen     clock.Reading
	lost     *replock.LostError
	err      error
}

func (s stubLock) Context() context.Context    { return context.Background() }
func (s stubLock) Deadline() time.Duration     { return s.deadline }
func (s stubLock) Seen() clock.Reading         { return s.seen }
func (s stubLock) Lost() *replock.LostError    { return s.lost }
func (s stubLock) Check(context.Context) error { return s.err }
func (s stubLock) Renew(context.Context) error { return s.err }

// TestEarliest: a set's deadline is the earliest, and its look the oldest, whatever the order.
func TestEarliest(t *testing.T) {
	a := stubLock{deadline: 30, seen: clock.Reading{Wall: 1, Elapsed: 12}}
	b := stubLock{deadline: 20, seen: clock.Reading{Wall: 2, Elapsed: 11}}
	c := stubLock{deadline: 40, seen: clock.Reading{Wall: 3, Elapsed: 10}}
	for _, locks := range [][]session.Lock{{a, b, c}, {c, b, a}, {b, c, a}} {
		l := newSetLock(locks)
		if l.Deadline() != 20 || l.Seen() != c.seen {
			t.Errorf("deadline %v, seen %v", l.Deadline(), l.Seen())
		}
	}
}

// TestLossOfOne: the loss of a set is that of any lock, and a definite one comes first.
func TestLossOfOne(t *testing.T) {
	held, maybe, sure := stubLock{}, stubLock{lost: &replock.LostError{}}, stubLock{lost: &replock.LostError{Definite: true}}
	for _, c := range []struct {
		locks []session.Lock
		want  *replock.LostError
	}{
		{[]session.Lock{held, held}, nil},
		{[]session.Lock{held, maybe}, maybe.lost},
		{[]session.Lock{sure, maybe}, sure.lost},
		{[]session.Lock{maybe, held, sure}, sure.lost},
	} {
		if got := newSetLock(c.locks).Lost(); got != c.want {
			t.Errorf("%+v: %+v", c.locks, got)
		}
	}
}

// TestLooksAtAll: a look and a renewal are of all locks, and return each error.
func TestLooksAtAll(t *testing.T) {
	first, last := errors.New("first"), errors.New("last")
	l := newSetLock([]session.Lock{stubLock{err: first}, stubLock{}, stubLock{err: last}})
	for _, f := range []func(context.Context) error{l.Check, l.Renew} {
		if err := f(t.Context()); !errors.Is(err, first) || !errors.Is(err, last) {
			t.Error(err)
		}
	}
	if err := newSetLock([]session.Lock{stubLock{}}).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// heldSet returns a set that holds locks whose keys are the letters. Those in upper case can be
// resumed.
func heldSet(t *testing.T, f *fake, letters string) (session.Lock, *record) {
	t.Helper()
	s, r := &Set{clock: f.clock}, &record{}
	for _, letter := range letters {
		var b locking.Backend = f
		if letter < 'a' {
			b = resumable{f}
		}
		s.members = append(s.members, fakeOther(b, f.clock, string(letter)))
	}
	l, err := s.Acquire(t.Context(), r.observe)
	if err != nil {
		t.Fatal(err)
	}
	return l, r
}

// silent makes requests of a kind fail for these keys.
func silent(kind, keys string) func(what, key string) error {
	return func(what, key string) error {
		if what == kind && slices.Contains([]byte(keys), key[0]) {
			return locking.ErrUnreachable
		}
		return nil
	}
}

// TestContextOfASet: the loss of one lock ends the set's context with its cause, and the others
// are held until the release.
func TestContextOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(leapclock.New())
		l, _ := heldSet(t, f, "abc")
		f.breakLock(t, "b")
		<-l.Context().Done()
		synctest.Wait()
		lost := l.Lost()
		if !errors.Is(context.Cause(l.Context()), replock.ErrLost) || lost == nil || lost.Key != "fake:b" || f.free(t, "a") || f.free(t, "c") {
			t.Errorf("%v, %v", context.Cause(l.Context()), lost)
		}
		if again, err := l.Resume(t.Context()); again != nil || !errors.Is(err, replock.ErrLost) {
			t.Errorf("resumed: %v", err)
		}
		if err := l.Release(t.Context()); err != nil || keys(f.asked("release")) != "cba" || !f.free(t, "a") || !f.free(t, "c") {
			t.Errorf("%v, %v", err, f.asked("release"))
		}
	})
}

// TestResumeOfASet: only the locks that are lost are resumed, and then all are held again.
func TestResumeOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(leapclock.New())
		l, r := heldSet(t, f, "aBCd")
		f.disturb(silent("renew", "BC"))
		<-l.Context().Done()
		synctest.Wait()
		if lost := l.Lost(); lost == nil || lost.Definite {
			t.Fatalf("%v", lost)
		}
		f.disturb(nil)
		again, err := l.Resume(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if keys(f.asked("resume")) != "BC" || len(r.of(replock.EventResumed)) != 2 || again.Lost() != nil || again.Context().Err() != nil {
			t.Errorf("resumed %v; lost: %v", f.asked("resume"), again.Lost())
		}
		time.Sleep(10 * time.Minute)
		if again.Lost() != nil || again.Deadline() <= f.clock.Elapsed() {
			t.Errorf("lost: %v", again.Lost())
		}
		f.breakLock(t, "C")
		<-again.Context().Done()
		if err := again.Release(t.Context()); err != nil || keys(f.asked("release")) != "dCBa" {
			t.Errorf("%v, %v", err, f.asked("release"))
		}
	})
}

// TestResumeOfASetFails: a lock that was resumed before another couldn't be is released with
// the set, and no other's lock is.
func TestResumeOfASetFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(leapclock.New())
		l, _ := heldSet(t, f, "aBC")
		f.disturb(silent("renew", "BC"))
		<-l.Context().Done()
		synctest.Wait()
		f.disturb(nil)
		f.breakLock(t, "C")
		theirs := f.take(t, "C", 24*time.Hour)
		if again, err := l.Resume(t.Context()); again != nil || !errors.Is(err, replock.ErrLost) {
			t.Fatalf("%v, %v", again, err)
		}
		if lost := l.Lost(); lost == nil || !lost.Definite || lost.Key != "fake:C" {
			t.Errorf("lost: %v", lost)
		}
		if err := l.Release(t.Context()); err != nil || !f.free(t, "a") || !f.free(t, "B") {
			t.Errorf("released: %v", err)
		}
		if f.Backend.Renew(t.Context(), theirs) != nil {
			t.Error("it released another's lock")
		}
		n := len(f.asked("renew"))
		time.Sleep(time.Hour)
		if len(f.asked("renew")) != n {
			t.Error("a lock is renewed after its release")
		}
	})
}

// TestReleaseFailsInASet: a release that fails doesn't keep the others from theirs.
func TestReleaseFailsInASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(leapclock.New())
		l, _ := heldSet(t, f, "abc")
		f.disturb(func(what, key string) error {
			if what == "release" && key == "b" {
				return locking.ErrPermission
			}
			return nil
		})
		if err := l.Release(t.Context()); !errors.Is(err, locking.ErrPermission) || !f.free(t, "a") || !f.free(t, "c") || l.Context().Err() == nil {
			t.Errorf("%v", err)
		}
	})
}

// finisher is a lock that stores how the work has ended.
type finisher struct {
	stubLock
	got *[]bool
}

func (f finisher) Finish(success bool) { *f.got = append(*f.got, success) }

// TestFinishOfASet: the result of the work reaches each lock that stores it.
func TestFinishOfASet(t *testing.T) {
	var got []bool
	l := newSetLock([]session.Lock{finisher{got: &got}, stubLock{}, finisher{got: &got}})
	l.Finish(false)
	if !slices.Equal(got, []bool{false, false}) {
		t.Error(got)
	}
}

// TestLead: a set is named as its first lock.
func TestLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		s := fakeSet(f, c, 0, "ab")
		l, err := s.Acquire(t.Context(), func(events.Event) {})
		if err != nil || l.Key() != "fake:a" {
			t.Errorf("%v, %v", l, err)
		}
		_ = l.Release(t.Context())
	})
}
