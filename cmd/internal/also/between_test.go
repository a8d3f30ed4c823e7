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
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// TestActsNeedTheirLook: a look that fails shows no lock, even if it also returns one. Nothing is broken after it.
func TestActsNeedTheirLook(t *testing.T) {
	down := errors.New("down")
	s := &shelf{info: &locking.Info{Revision: "1", TTL: time.Minute}, err: down}
	l := Lock{Backend: s, Target: target("k")}
	info, err := l.Inspect(t.Context())
	assert.That(t, info == nil && errors.Is(err, down), "%v, %v", info, err)
	infos, err := l.Status(t.Context())
	assert.That(t, infos == nil && errors.Is(err, down), "%v, %v", infos, err)
	broken, err := l.Break(t.Context(), replock.BreakOptions{})
	assert.That(t, broken == nil && errors.Is(err, down) && len(s.broken) == 0, "%v, %v", broken, err)
	_, err = l.Examine(t.Context())
	assert.Is(t, err, down)

	free := Lock{Backend: &shelf{}, Target: target("k")}
	infos, err = free.Status(t.Context())
	assert.That(t, infos == nil && err == nil, "%v, %v", infos, err)
	blind := Lock{Backend: struct{ locking.Backend }{}, Target: target("k")}
	info, err = blind.Inspect(t.Context())
	assert.That(t, info == nil && err == nil, "%v, %v", info, err)
	infos, err = Lock{Backend: &shelf{info: &locking.Info{Revision: "1"}}, Target: target("k")}.Status(t.Context())
	assert.That(t, err == nil && len(infos) == 1 && infos[0].ID == "1", "%v, %v", infos, err)
}

// TestReleaseOfALostLock: the release of a lost lock tries to free it, and reports no second end. Only an answer that
// the lock isn't ours makes a failure of no consequence.
func TestReleaseOfALostLock(t *testing.T) {
	for _, c := range []struct{ answer, want error }{{nil, nil}, {locking.ErrLost, nil}, {locking.ErrPermission, locking.ErrPermission}} {
		inBubble(t, func(t *testing.T, f *fake) {
			l, r := acquired(t, f.other("k"))
			f.disturb(failing("renew", "", locking.ErrUnreachable))
			<-l.Context().Done()
			f.disturb(failing("release", "", c.answer))
			err := l.Release(t.Context())
			assert.That(t, errors.Is(err, c.want) && (err == nil) == (c.want == nil) && len(f.asked("release")) > 0, "%v: %v", c.answer, err)
			failed := r.of(replock.EventReleaseFailed)
			assert.That(t, len(r.of(replock.EventReleased)) == 0 && (len(failed) == 1) == (c.want != nil) && len(r.of(replock.EventLost)) == 1, "%v", r.kinds())
			for _, e := range failed {
				assert.That(t, !e.Ended, "a second end: %+v", e)
			}
		})
	}
}

// TestSlowAcquireIsReleased: a lock that was acquired too late is released. If that fails, the error says so, unless
// the lock is gone.
func TestSlowAcquireIsReleased(t *testing.T) {
	for _, c := range []struct {
		answer error
		says   bool
	}{{nil, false}, {locking.ErrLost, false}, {locking.ErrPermission, true}} {
		inBubble(t, func(t *testing.T, f *fake) {
			f.disturb(func(what, _ string) error {
				switch what {
				case "try":
					f.clock.Leap.Add(int64(lasts))
				case "release":
					return c.answer
				}
				return nil
			})
			_, err := f.other("k").acquire(t.Context(), 0, (&record{}).observe)
			assert.That(t, err != nil && strings.Contains(err.Error(), "could not be released") == c.says && errors.Is(err, locking.ErrPermission) == c.says, "%v: %v", c.answer, err)
			assert.Equal(t, len(f.asked("release")), 1)
		})
	}
}

// TestReleaseWaitsForARenewal: a renewal that reaches the server after the release could store the lock again. So the
// release is sent once the renewal that is under way was answered.
func TestReleaseWaitsForARenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		var order []string
		begun := make(chan struct{}, 1)
		f.disturb(func(what, _ string) error {
			if what == "renew" {
				begun <- struct{}{}
				time.Sleep(time.Second)
			}
			order = append(order, what)
			return nil
		})
		l, _ := acquired(t, f.other("k"))
		<-begun
		assert.OK(t, l.Release(t.Context()))
		assert.Equal(t, order, []string{"try", "renew", "release"})
	})
}

// TestEventsOfATerm: an event tells how long the lock has been held, and how long it lasts.
func TestEventsOfATerm(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		l, r := acquired(t, f.other("k"))
		time.Sleep(5 * time.Second)
		assert.OK(t, l.Release(t.Context()))
		e := r.of(replock.EventReleased)
		assert.That(t, len(e) == 1 && e[0].Held == 5*time.Second && e[0].Left > 0 && e[0].Left < lasts && e[0].Ended && e[0].ID != "", "%+v", e)
	})
}

// TestInfoOfALock: what status shows of the lock of another system. A date that its holder hasn't written is no age, and
// a far one doesn't overflow.
func TestInfoOfALock(t *testing.T) {
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		info      locking.Info
		holder    string
		id        string
		age, left int // their signs
	}{
		"undated":          {locking.Info{Revision: "r", Holder: "h", TTL: time.Minute}, "h", "r", 0, 1},
		"without a ttl":    {locking.Info{Revision: "r", Holder: "h", Renewed: time.Now().Add(-time.Hour)}, "h", "r", 1, 0},
		"expired":          {locking.Info{Revision: "r", Holder: "h", TTL: time.Minute, Renewed: time.Now().Add(-time.Hour)}, "h", "r", 1, -1},
		"of a far year":    {locking.Info{Revision: "r", Holder: "h", TTL: time.Minute, Renewed: far}, "h", "r", -1, 1},
		"of the first":     {locking.Info{Revision: "r", Holder: "h", TTL: time.Minute, Renewed: time.Time{}.Add(1)}, "h", "r", 1, -1},
		"with a host":      {locking.Info{Revision: "r", Holder: "h", Host: "m", PID: 7}, "h on m (pid 7)", "r", 0, 0},
		"with a request":   {locking.Info{Revision: "r", Request: "q", Holder: "h", Host: "m", PID: 7}, "m (pid 7)", "q", 0, 0},
		"without a host":   {locking.Info{Revision: "r", Request: "q", Holder: "h", PID: 7}, "(pid 7)", "q", 0, 0},
		"without a holder": {locking.Info{Revision: "r"}, "", "r", 0, 0},
	} {
		got := Lock{Target: target("k")}.info(&c.info)
		sign := func(d time.Duration) int { return min(max(int(d/time.Second), -1), 1) }
		assert.That(t, got.Holder == c.holder && got.ID == c.id && sign(got.Age) == c.age && sign(got.Left) == c.left, "%s: %+v", name, got)
	}
}

// hanging is a backend whose looks hang until they are given up.
type hanging struct{ locking.Backend }

func (hanging) Inspect(ctx context.Context, _ string) (*locking.Info, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestLooksEnd: a look at a system that hangs is given up.
func TestLooksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Lock{Backend: hanging{}, Target: target("k")}
		for _, c := range []struct {
			what  string
			look  func() error
			limit time.Duration
		}{
			{"inspect", func() error { return assert.Err(l.Inspect(t.Context())) }, 5 * time.Second},
			{"status", func() error { return assert.Err(l.Status(t.Context())) }, 5 * time.Second},
			{"break", func() error { return assert.Err(l.Break(t.Context(), replock.BreakOptions{})) }, 5 * time.Second},
			{"examine", func() error { return assert.Err(l.Examine(t.Context())) }, 30 * time.Second},
		} {
			start := time.Now()
			assert.Is(t, c.look(), context.DeadlineExceeded, c.what)
			assert.Equal(t, time.Since(start), c.limit, c.what)
		}
	})
}

// TestTTLOfATarget: a system's own default ttl counts only if the user has chosen none.
func TestTTLOfATarget(t *testing.T) {
	for _, c := range []struct {
		own    time.Duration
		chosen bool
		want   time.Duration
	}{{0, true, time.Minute}, {0, false, time.Minute}, {time.Hour, true, time.Hour}, {time.Hour, false, time.Minute}} {
		assert.Equal(t, Target{ttl: c.own}.TTL(Request{TTL: time.Minute, DefaultTTL: c.chosen}), c.want, "%+v", c)
	}
}

// TestMembers: a set has the repository first, and then the targets, each as its kind.
func TestMembers(t *testing.T) {
	t.Chdir(t.TempDir())
	targets, err := Parse([]string{"repo:./other#photos", "redis://h?key=k"})
	assert.OK(t, err)
	made := 0
	r := Request{TTL: time.Minute, Look: time.Minute, Repository: func(session.Place) *session.Repository { made++; return &session.Repository{} }}
	s := NewSet(&session.Repository{}, targets, r)
	var kinds []string
	for _, m := range s.members {
		kinds = append(kinds, fmt.Sprintf("%T %s", m, m.place().Name))
	}
	assert.Equal(t, kinds, []string{"*also.repository ", "*also.repository photos", "*also.other " + targets[1].Place.Name})
	assert.That(t, made == 1 && len(NewSet(nil, targets, r).members) == 2, "%d repositories", made)
}
