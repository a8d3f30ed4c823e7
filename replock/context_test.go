package replock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/store/mem"
)

type valueKey struct{}

// TestAcquireContextIsNotTheLocks: the context of an acquire bounds the acquire. A lock
// that was acquired lives on when it ends, and has its values.
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
				if err := k.Check(t.Context()); err != nil {
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

// errQuit is why a parent ends.
var errQuit = errors.New("the program quits")

// TestParentEndsTheLocksContext, and not the lock, which is held until it is released.
// Neither Check nor Confirm says that all is well: the work must stop.
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
		for name, look := range map[string]func(context.Context) error{"check": k.Check, "confirm": k.Confirm} {
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

// TestParentEndsTheAcquire: what the lock is for can't begin any more, so that nothing is
// waited for.
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

// TestResumedLockKeepsItsParent: of the context of Resume it has nothing.
func TestResumedLockKeepsItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		m := w.machine()
		parent, quit := context.WithCancelCause(t.Context())
		k, err := m.Shared(t.Context(), "backup", Parent(parent))
		mustLock(t, k, err)
		m.tap.Before(outage)
		<-k.Context().Done()
		m.tap.Before(nil)
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
