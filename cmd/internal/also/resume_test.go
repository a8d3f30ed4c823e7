package also

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// suspended returns a lock that a suspend has ended.
func suspended(t *testing.T, f *fake) (*held, *record) {
	t.Helper()
	l, r := acquired(t, fakeOther(resumable{f}, f.clock, "k"))
	f.disturb(always("renew", locking.ErrUnreachable))
	<-l.Context().Done()
	f.disturb(nil)
	return l, r
}

// TestResume: a lock that no other holder can have had goes on, under a new id, and is renewed
// and released as before.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(leapclock.New())
		l, r := suspended(t, f)
		if lost := l.Lost(); lost == nil || lost.Definite {
			t.Fatalf("%v", lost)
		}
		at := f.clock.Elapsed()
		again, err := l.Resume(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if again.Lost() != nil || again.Context().Err() != nil || again.ID() == l.ID() || again.Deadline() != at+lease || again.Seen().Elapsed != at {
			t.Errorf("%v, %v", again.Deadline(), again.Seen())
		}
		if e := r.of(replock.EventResumed); len(e) != 1 || e[0].ID != again.ID() {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Minute)
		if again.Lost() != nil || f.free(t, "k") {
			t.Errorf("lost: %v", again.Lost())
		}
		if err := again.Release(t.Context()); err != nil || !f.free(t, "k") {
			t.Error(err)
		}
		if got := r.kinds(); !slices.Equal(got[len(got)-3:], []replock.EventKind{replock.EventLost, replock.EventResumed, replock.EventReleased}) {
			t.Errorf("events: %v", got)
		}
	})
}

// TestResumeFails: a lock that another holder can have had is lost for good. After another
// error a resume can be tried again.
func TestResumeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(leapclock.New())
		l, r := suspended(t, f)
		f.disturb(always("resume", errors.New("input/output error")))
		if again, err := l.Resume(t.Context()); again != nil || err == nil || l.Lost().Definite {
			t.Errorf("%v, %v, %v", again, err, l.Lost())
		}
		f.disturb(nil)
		f.breakLock(t, "k")
		other := f.take(t, "k", time.Hour)
		if again, err := l.Resume(t.Context()); again != nil || !errors.Is(err, replock.ErrLost) || !l.Lost().Definite {
			t.Errorf("%v, %v, %v", again, err, l.Lost())
		}
		if err := l.Release(t.Context()); err != nil || f.Backend.Renew(t.Context(), other) != nil {
			t.Errorf("released: %v", err)
		}
		if n := len(r.of(replock.EventResumed)); n > 0 {
			t.Errorf("%v", r.kinds())
		}
	})
}

// TestResumeOfHeld: a lock that is held isn't resumed.
func TestResumeOfHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		l, _ := acquired(t, fakeOther(resumable{f}, c, "k"))
		if again, err := l.Resume(t.Context()); again != nil || err == nil || len(f.asked("resume")) > 0 {
			t.Errorf("%v, %v", again, err)
		}
		_ = l.Release(t.Context())
	})
}
