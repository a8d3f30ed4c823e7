package also

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// TestReleaseOnce: concurrent releases are one request, and the renewals end before it.
func TestReleaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		l, r := acquired(t, fakeOther(f, c, "k"))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Hour)
		if len(f.asked("release")) != 1 || len(f.asked("renew")) != 0 || !f.free(t, "k") {
			t.Errorf("requests: %v", f.calls)
		}
		if got := r.kinds(); !slices.Equal(got, []replock.EventKind{replock.EventAcquired, replock.EventReleased}) {
			t.Errorf("events: %v", got)
		}
		if context.Cause(l.Context()) != replock.ErrReleased || l.Lost() != nil {
			t.Errorf("%v, %v", context.Cause(l.Context()), l.Lost())
		}
	})
}

// TestReleaseFails: a release is tried again while the server is silent, and reported if it
// fails. The lock is not held afterwards.
func TestReleaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		l, r := acquired(t, fakeOther(f, c, "k"))
		time.AfterFunc(5*time.Second, func() { f.disturb(nil) })
		f.disturb(always("release", locking.ErrUnreachable))
		if err := l.Release(t.Context()); err != nil || !f.free(t, "k") || len(f.asked("release")) < 2 {
			t.Errorf("%v after %d tries", err, len(f.asked("release")))
		}
		if n := len(r.of(replock.EventReleased)); n != 1 {
			t.Errorf("%d events", n)
		}

		l, r = acquired(t, fakeOther(f, c, "k"))
		f.disturb(always("release", locking.ErrPermission))
		if err := l.Release(t.Context()); !errors.Is(err, locking.ErrPermission) {
			t.Error(err)
		}
		if e := r.of(replock.EventReleaseFailed); len(e) != 1 || !errors.Is(e[0].Err, locking.ErrPermission) || len(r.of(replock.EventReleased)) > 0 {
			t.Errorf("%+v", r.kinds())
		}
		if l.Context().Err() == nil {
			t.Error("it is held")
		}
	})
}

// TestFinish: the result of the work is passed on to a lock that stores it.
func TestFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		o := fakeOther(newFake(c), c, "k")
		l, _ := acquired(t, o)
		l.Finish(true) // which does nothing
		var got []bool
		o.finish = func(success bool) { got = append(got, success) }
		l.Finish(true)
		l.Finish(false)
		if !slices.Equal(got, []bool{true, false}) {
			t.Error(got)
		}
		_ = l.Release(t.Context())
	})
}
