package lockingtest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/locking"
)

// losses are the ways to take away the lock of a key from outside.
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

// released is what takes a lock away if it is its holder's own release.
const released = "released"

// lostStaysLost releases a lock, or takes it away from outside. Whatever its holder does first, it learns of
// the loss, restores no lock, and changes nothing of the next holder's.
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
		if f.Failed() { // Guard can wait for what doesn't come
			return
		}
		if way != released {
			f.watched(way, lose)
			f.guarded(way, lose)
		}
	}
}

// calls are what a client can do with a handle.
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

// areLost makes all calls.
func (f *fixture) areLost(what string, calls map[string]func(locking.Handle) error, h locking.Handle) {
	f.Helper()
	for name, call := range calls {
		f.isLost(name+" "+what, call(h))
	}
}

// lost takes a lock away, has another client acquire it if beside is set, and then has its holder make
// all calls, one of them first.
func (f *fixture) lost(way string, lose func(), holder *client, first string, beside bool) {
	f.Helper()
	next := f.b
	if holder == f.b {
		next = f.a
	}
	calls := f.calls(holder)
	if calls[first] == nil { // a client in another process is no Resumer
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

// holder is what Inspect shows of a holder apart from its renewals, if the backend is an Inspector.
func (f *fixture) holder() (i locking.Info) {
	f.Helper()
	if _, ok := f.c.Backend.(locking.Inspector); ok {
		i = *f.seeHeld()
		i.Renewed, i.TTL = time.Time{}, 0 // some backends reckon them from the time that is left
	}
	return i
}

// watched checks that the channel of Watch is closed in time, if the backend notices losses by itself.
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

// guarded checks that Guard's function ends at the next renewal, and leaves the next holder's lock alone.
func (f *fixture) guarded(way string, lose func()) {
	f.Helper()
	c := &ahead{Clock: clock.System{}}
	var held locking.Handle
	start := c.Elapsed()
	ran, err := locking.GuardAt(f.Context(), c, f.a, locking.RequireGlobal, f.key, long, func(ctx context.Context) error {
		lose()
		held = f.acquire(f.b, f.key, long)
		c.by.Store(int64(long / 3))
		select {
		case <-ctx.Done():
		case <-time.After(f.Limit):
		}
		if cause := context.Cause(ctx); !errors.Is(cause, locking.ErrLost) || c.Elapsed()-start > long/2 {
			f.Errorf("of a lock that was %s, Guard's function ended after %v by %v", way, c.Elapsed()-start, cause)
		}
		return nil
	})
	if !ran || !errors.Is(err, locking.ErrLost) {
		f.Errorf("Guard with a lock that was %s: %v, %v", way, ran, err)
	}
	f.refused(f.c, f.key)
	f.release(f.b, held)
}

// ahead is a clock that a test moves ahead.
type ahead struct {
	locking.Clock
	by atomic.Int64
}

func (c *ahead) Elapsed() time.Duration { return c.Clock.Elapsed() + time.Duration(c.by.Load()) }
