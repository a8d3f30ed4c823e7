package lockingtest

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/locking"
)

// losses returns the ways to free a held lock without its holder.
func (f *fixture) losses() map[string]func() {
	f.Helper()
	all := make(map[string]func())
	if f.Lose != nil {
		all["taken away"] = func() { f.Lose(f.T, f.key) }
	}
	breaker, ok := f.c.Backend.(locking.Breaker)
	if _, can := f.c.Backend.(locking.Inspector); ok && can {
		all["broken"] = func() {
			f.Helper()
			if ok, err := breaker.Break(f.Context(), f.seeHeld(), false); !ok || err != nil {
				f.Fatalf("break: %v, %v", ok, err)
			}
		}
	}
	if len(all) == 0 {
		f.Fatal("no way to lose a lock: set Config.Lose, because the backend is no Breaker and Inspector")
	}
	return all
}

// released is the name of one of these ways: the holder's own Release.
const released = "released"

// lostStaysLost frees a lock in each way. Whichever of its methods the holder then calls first, the method must return
// ErrLost, restore no lock, and change nothing of the next holder's lock.
func lostStaysLost(f *fixture) {
	losses := f.losses()
	losses[released] = nil
	for way, lose := range losses {
		for first := range f.calls(f.a) {
			for _, holder := range []*client{f.a, f.b} {
				for _, beside := range []bool{false, true} {
					f.lost(way, lose, holder, first, beside)
				}
			}
		}
		if f.Failed() { // otherwise watched and guarded would hang
			return
		}
		if way != released {
			f.watched(way, lose)
			f.guarded(way, lose)
		}
	}
}

// calls returns the methods that take a handle, by name.
func (f *fixture) calls(c *client) map[string]func(locking.Handle) error {
	calls := map[string]func(locking.Handle) error{
		"renew":   func(h locking.Handle) error { return c.Renew(f.Context(), h) },
		"release": func(h locking.Handle) error { return c.Release(f.Context(), h) },
	}
	if r, ok := c.Backend.(locking.Resumer); ok {
		calls["resume"] = func(h locking.Handle) error { return r.Resume(f.Context(), h) }
	}
	return calls
}

// areLost checks that each call returns ErrLost.
func (f *fixture) areLost(what string, calls map[string]func(locking.Handle) error, h locking.Handle) {
	f.Helper()
	for name, call := range calls {
		f.isLost(name+" "+what, call(h))
	}
}

// lost frees the holder's lock. If beside is set, it lets another client acquire the lock. Then it makes all calls of
// the holder, beginning with first.
func (f *fixture) lost(way string, lose func(), holder *client, first string, beside bool) {
	f.Helper()
	next := f.b
	if holder == f.b {
		next = f.a
	}
	calls := f.calls(holder)
	if calls[first] == nil { // Resume, of a client in another process
		return
	}
	h := f.acquire(holder, f.key, long)
	if way == released {
		f.release(holder, h)
	} else {
		lose()
	}
	what := " a lock that was " + way
	if !beside {
		f.isLost(first+" of"+what, calls[first](h))
		f.areLost("after "+first+" of"+what, calls, h)
		f.release(next, f.acquire(next, f.key, long))
		return
	}
	held := f.acquire(next, f.key, long)
	before := f.holder()
	f.isLost(first+" beside the next holder of"+what, calls[first](h))
	f.areLost("after "+first+" beside the next holder of"+what, calls, h)
	f.areLost("by the next holder of"+what, f.calls(next), h)
	f.refused(f.c, f.key)
	if after := f.holder(); after != before {
		f.Errorf("%s of%s changed the next holder: %+v, then %+v", first, what, before, after)
	}
	if err := next.Renew(f.Context(), held); err != nil {
		f.Errorf("the next holder's renew after %s of%s: %v", first, what, err)
	}
	f.release(next, held)
	f.areLost("after the next holder of"+what, calls, h)
}

// holder returns the result of Inspect without the times of renewal, or the zero Info if the backend
// is no Inspector.
func (f *fixture) holder() (i locking.Info) {
	f.Helper()
	if _, ok := f.c.Backend.(locking.Inspector); ok {
		i = *f.seeHeld()
		i.Renewed, i.TTL = time.Time{}, 0 // some backends compute them from the remaining time
	}
	return i
}

// watched checks that the channel of Watch is closed within Notice.
func (f *fixture) watched(way string, lose func()) {
	f.Helper()
	w, ok := f.a.Backend.(locking.Watcher)
	if !ok || f.Notice == 0 {
		return
	}
	h := f.acquire(f.a, f.key, long)
	noticed := w.Watch(h)
	lose()
	limit := f.Limit
	if f.Bubble {
		limit = f.Notice
	}
	select {
	case <-noticed:
	case <-time.After(limit):
		f.Errorf("the loss of a lock that was %s isn't noticed within %v", way, limit)
	}
	f.isLost("renew after Watch of a lock that was "+way, f.a.Renew(f.Context(), h))
	f.isLost("release after Watch of a lock that was "+way, f.a.Release(f.Context(), h))
	select {
	case <-w.Watch(h):
	case <-time.After(limit):
		f.Errorf("of a lock that was %s, Watch returns a channel that isn't closed", way)
	}
}

// guarded checks that Guard ends its function at the next renewal, and leaves the next holder's lock
// alone.
func (f *fixture) guarded(way string, lose func()) {
	f.Helper()
	b := alarmed{f.a, make(chan struct{})}
	var held locking.Handle
	ran, err := locking.Guard(f.Context(), b, locking.RequireGlobal, f.key, long, func(ctx context.Context) error {
		lose()
		held = f.acquire(f.b, f.key, long)
		close(b.alarm)
		select {
		case <-ctx.Done():
		case <-time.After(min(f.Limit, long/3)): // then Guard renews anyway
		}
		if cause := context.Cause(ctx); !errors.Is(cause, locking.ErrLost) {
			f.Errorf("Guard has renewed a lock that was %s: its context has the cause %v, want ErrLost", way, cause)
		}
		return nil
	})
	if !ran || !errors.Is(err, locking.ErrLost) {
		f.Errorf("Guard with a lock that was %s: %v, %v", way, ran, err)
	}
	f.refused(f.c, f.key)
	f.release(f.b, held)
}

// alarmed is a Watcher. When the test closes its alarm, Guard renews at once.
type alarmed struct {
	locking.Backend
	alarm chan struct{}
}

func (a alarmed) Watch(locking.Handle) <-chan struct{} { return a.alarm }
