package replock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/mem"
)

type valueKey struct{}

// TestAcquireContextIsNotTheLocks: the context of an acquire bounds the acquire only. The
// acquired lock outlives it, and has its values.
func TestAcquireContextIsNotTheLocks(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "value"), time.Minute)
				k, err := w.machine().acquire(ctx, mode, "work")
				cancel()
				mustLock(t, k, err)
				time.Sleep(5 * time.Minute)
				if !alive(k) {
					t.Errorf("the lock's context ended with the acquire's: %v", context.Cause(k.Context()))
				}
				if err := k.Renew(t.Context()); err != nil {
					t.Errorf("check: %v", err)
				}
				if got := k.Context().Value(valueKey{}); got != "value" {
					t.Errorf("the lock's context has the value %v", got)
				}
				mustRelease(t, k)
				w.empty()
			})
		})
	}
}

// errQuit is the cause of a parent's end.
var errQuit = errors.New("the program quits")

// TestParentEndsTheLocksContext: the parent's end ends the lock's context, and not the lock,
// which is held until it is released. Renew and Check return errors, because the work must
// stop.
func TestParentEndsTheLocksContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		parent, quit := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "parent's"))
		k, err := w.machine().Exclusive(t.Context(), "prune", Parent(parent))
		mustLock(t, k, err)
		if got := k.Context().Value(valueKey{}); got != "parent's" {
			t.Errorf("the lock's context has the value %v", got)
		}
		quit(errQuit)
		synctest.Wait()
		if alive(k) || context.Cause(k.Context()) != errQuit {
			t.Errorf("the lock's context: %v", context.Cause(k.Context()))
		}
		for name, look := range map[string]func(context.Context) error{"check": k.Renew, "confirm": k.Check} {
			if err := look(t.Context()); !errors.Is(err, errQuit) || errors.Is(err, ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
		}
		time.Sleep(5 * time.Minute)
		if k.Lost() != nil {
			t.Errorf("lost although it is refreshed until release: %v", k.Lost())
		}
		mustRelease(t, k)
		w.empty()
	})
}

// TestParentEndsTheAcquire: once the parent has ended, an acquire returns at once, since the
// work can't begin any more.
func TestParentEndsTheAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		first, err := w.machine().Shared(t.Context(), "backup")
		mustLock(t, first, err)
		parent, quit := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { quit(errQuit) })
		k, err := w.machine().Exclusive(t.Context(), "prune", Parent(parent), Wait(time.Hour))
		if k != nil || !errors.Is(err, errQuit) {
			t.Errorf("waiting until the parent ended: %v", err)
		}
		k, err = w.machine().Shared(t.Context(), "backup", Parent(parent))
		if k != nil || !errors.Is(err, errQuit) {
			t.Errorf("with a parent that has ended: %v", err)
		}
		mustRelease(t, first)
		w.empty()
	})
}

// TestResumedLockKeepsItsParent: a resumed lock takes no values and no end from Resume's
// context.
func TestResumedLockKeepsItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		m := w.machine()
		parent, quit := context.WithCancelCause(t.Context())
		k, err := m.Shared(t.Context(), "backup", Parent(parent))
		mustLock(t, k, err)
		m.hooks.Before(outage)
		<-k.Context().Done()
		m.hooks.Before(nil)
		ctx, cancel := context.WithCancel(t.Context())
		k, err = k.Resume(ctx)
		mustLock(t, k, err)
		cancel()
		time.Sleep(time.Minute)
		if !alive(k) {
			t.Errorf("ended with the context of Resume: %v", context.Cause(k.Context()))
		}
		quit(errQuit)
		synctest.Wait()
		if context.Cause(k.Context()) != errQuit {
			t.Errorf("the parent has ended: %v", context.Cause(k.Context()))
		}
		mustRelease(t, k)
	})
}

func mustRelease(t *testing.T, k *Lock) {
	t.Helper()
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestWaitEndedByItsContext: if its context ends while others keep it out, an acquire returns
// an error for both, the holders and the context. Nothing of it is left.
func TestWaitEndedByItsContext(t *testing.T) {
	deadline := func(t *testing.T) (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), time.Minute)
	}
	canceled := func(t *testing.T) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		return ctx, cancel
	}
	quits := func(t *testing.T) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(errQuit) })
		return ctx, func() { cancel(nil) }
	}
	hangs := func(ctx context.Context, r hookstore.Request) error {
		if r.Op != "list" {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	for _, c := range []struct {
		name   string
		mode   Mode
		end    func(*testing.T) (context.Context, context.CancelFunc)
		before hookstore.Before // of a request shortly before
		errs   []error
	}{
		{"deadline, exclusive", Exclusive, deadline, nil, []error{context.DeadlineExceeded}},
		{"deadline, shared", Shared, deadline, nil, []error{context.DeadlineExceeded}},
		{"canceled", Exclusive, canceled, nil, []error{context.Canceled}},
		{"canceled with a cause", Shared, quits, nil, []error{context.Canceled, errQuit}},
		{"in the midst of a look", Exclusive, deadline, hangs, []error{context.DeadlineExceeded}},
		{"when the store fails", Shared, deadline, outage, []error{context.DeadlineExceeded}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				holder, waiter := w.machine(), w.machine()
				first, err := holder.Exclusive(t.Context(), "the first")
				mustLock(t, first, err)
				ctx, cancel := c.end(t)
				defer cancel()
				if c.before != nil {
					time.AfterFunc(40*time.Second, func() { waiter.hooks.Before(c.before) })
					time.AfterFunc(time.Minute, func() { waiter.hooks.Before(nil) })
				}
				k, err := waiter.acquire(ctx, c.mode, "the second", Wait(time.Hour))
				held := mustHeld(t, k, err)
				for _, want := range append(c.errs, ErrHeld) {
					if !errors.Is(err, want) {
						t.Errorf("%v: not %v", err, want)
					}
				}
				if len(held.Holders) != 1 || held.Holders[0].Operation != "the first" || !strings.Contains(err.Error(), "m1 (pid 101)") {
					t.Errorf("doesn't say who holds it: %v", err)
				}
				if held.Waited < time.Minute || held.Waited > 65*time.Second {
					t.Errorf("waited for %v", held.Waited)
				}
				waiter.Flush(t.Context())
				if waiter.saw(EventBlocked) != 1 {
					t.Errorf("the observer got %d events", waiter.saw(EventBlocked))
				}
				mustRelease(t, first)
				w.empty()
			})
		})
	}
}

// TestContextEndsWithoutHolders: if no holder keeps it out when its context ends, an acquire
// names none.
func TestContextEndsWithoutHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		m := w.machine()
		m.hooks.Before(outage)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		k, err := m.Exclusive(ctx, "prune", Wait(time.Hour))
		if k != nil || errors.Is(err, ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// TestContextEndsThoughTheObserverBlocks: the lock's context ends at its deadline even if the
// observer or the logger blocks.
func TestContextEndsThoughTheObserverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		stuck := make(chan struct{})
		a := w.machine(func(o *Options) {
			o.Observe = func(e Event) {
				if e.Kind == EventRefreshFailed {
					<-stuck
				}
			}
		})
		b := w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		a.hooks.Before(outage)
		time.Sleep(65 * time.Second)
		other, err := b.Exclusive(t.Context(), "prune")
		mustLock(t, other, err)
		if alive(k) {
			t.Error("both in: the context outlives its deadline while the logger blocks")
		}
		close(stuck)
		other.Release(t.Context())
		a.hooks.Before(nil)
		k.Release(t.Context())
	})
}

// TestResumeContextIsNotTheLocks: the resumed lock outlives the limit of Resume's context.
func TestResumeContextIsNotTheLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		k, err := a.Shared(t.Context(), "x")
		mustLock(t, k, err)
		a.lose(t, k)
		a.hooks.Before(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		r, err := k.Resume(ctx)
		mustLock(t, r, err)
		time.Sleep(11 * time.Minute)
		if !alive(r) {
			t.Errorf("ended by the limit of the resume: %v; lost: %v", context.Cause(r.Context()), r.Lost())
		}
		r.Release(t.Context())
	})
}
