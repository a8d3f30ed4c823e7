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

var errWork = errors.New("the work failed")

// TestDo: Do runs the work under the lock, releases the lock, and returns the work's error.
func TestDo(t *testing.T) {
	for _, want := range []error{nil, errWork} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{})
			m, other := w.machine(), w.machine()
			ctx := context.WithValue(t.Context(), valueKey{}, "value")
			ran := 0
			err := m.Do(ctx, Exclusive, "prune", func(ctx context.Context) error {
				ran++
				if ctx.Err() != nil || ctx.Value(valueKey{}) != "value" {
					t.Errorf("the work's context: %v, %v", ctx.Err(), ctx.Value(valueKey{}))
				}
				k, err := other.Shared(t.Context(), "backup")
				mustHeld(t, k, err)
				return want
			})
			if err != want || ran != 1 {
				t.Errorf("got %v, and the work was done %d times", err, ran)
			}
			w.empty()
		})
	}
}

// TestDoWithoutTheLock: Do doesn't run the work without the lock.
func TestDoWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		m, other := w.machine(), w.machine()
		k, err := other.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		work := func(context.Context) error {
			t.Error("it was done")
			return nil
		}
		err = m.Do(t.Context(), Exclusive, "prune", work, Wait(10*time.Second))
		var held *HeldError
		if !errors.As(err, &held) || held.Waited < 10*time.Second {
			t.Errorf("held by another: %v", err)
		}
		for _, mode := range []Mode{0, 3} {
			if err := m.Do(t.Context(), mode, "prune", work); err == nil {
				t.Errorf("mode %d: no error", mode)
			}
		}
		m.hooks.Before(outage)
		if err := m.Do(t.Context(), Shared, "backup", work); !errors.Is(err, errOutage) {
			t.Errorf("outage: %v", err)
		}
		mustRelease(t, k)
		w.empty()
	})
}

// TestDoReportsALoss: Do returns an error for a lost lock, even if the work didn't notice, or
// failed with its context.
func TestDoReportsALoss(t *testing.T) {
	breaks := func(w *world, m *machine) {
		if _, err := w.machine().Break(context.Background(), BreakOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	fails := func(w *world, m *machine) { m.hooks.Before(outage) }
	for _, c := range []struct {
		name string
		lose func(*world, *machine)
		work func(context.Context) error
		errs []error
	}{
		{"broken, and unseen", breaks, func(context.Context) error { return nil }, nil},
		{"broken, and it fails", breaks, func(context.Context) error { return errWork }, []error{errWork}},
		{"broken, and seen", breaks, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, []error{context.Canceled}},
		{"broken, and named", breaks, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, nil},
		{"outage", fails, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, []error{context.Canceled, errOutage}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				m := w.machine()
				err := m.Do(t.Context(), Exclusive, "prune", func(ctx context.Context) error {
					c.lose(w, m)
					return c.work(ctx)
				})
				var lost *LostError
				if !errors.As(err, &lost) || strings.Contains(err.Error(), "\n") || strings.Count(err.Error(), "lock lost") != 1 {
					t.Fatalf("got %v", err)
				}
				for _, want := range c.errs {
					if !errors.Is(err, want) {
						t.Errorf("%v: not %v", err, want)
					}
				}
			})
		})
	}
}

// TestDoOverslept: Do returns an error for a loss that only the end of a suspend shows.
func TestDoOverslept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		m := w.machine()
		err := m.Do(t.Context(), Shared, "backup", func(context.Context) error {
			m.hooks.Before(outage)
			m.clock.jump(time.Minute)
			return nil
		})
		if !errors.Is(err, ErrLost) {
			t.Errorf("got %v", err)
		}
	})
}

// TestDoReportsAFailedRelease: if the release fails, Do returns its error beside the work's,
// and the lock expires.
func TestDoReportsAFailedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		m := w.machine()
		err := m.Do(t.Context(), Shared, "backup", func(context.Context) error {
			m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if r.Op == "delete" {
					return errOutage
				}
				return nil
			})
			return errWork
		})
		if !errors.Is(err, errWork) || !errors.Is(err, errOutage) || errors.Is(err, ErrLost) {
			t.Errorf("got %v", err)
		}
	})
}

// TestDoEndsWithItsContext: when Do's context ends, the work must stop, and the lock is
// released.
func TestDoEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		ctx, quit := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { quit(errQuit) })
		err := w.machine().Do(ctx, Shared, "backup", func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if err != errQuit {
			t.Errorf("got %v", err)
		}
		w.empty()
	})
}

// TestDoReleasesWhenTheWorkPanics: otherwise the lock would be refreshed for ever.
func TestDoReleasesWhenTheWorkPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		defer func() {
			if recover() != "panic" {
				t.Error("the panic is not passed on")
			}
			w.empty()
		}()
		_ = w.machine().Do(t.Context(), Exclusive, "prune", func(context.Context) error { panic("panic") })
	})
}

// TestNoStore: New returns an error for a nil store; the first lock must not panic.
func TestNoStore(t *testing.T) {
	if l, err := New(nil, Options{}); err == nil || l != nil {
		t.Errorf("got %v, %v", l, err)
	}
}

// TestLeftIsTheLease: Left returns for how long the lock is held without another refresh.
func TestLeftIsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		m := w.machine()
		k, err := m.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		if left := k.Left(); left != 55*time.Second {
			t.Errorf("%v left after it was acquired", left)
		}
		m.hooks.Before(outage)
		time.Sleep(50 * time.Second)
		if left := k.Left(); left != 5*time.Second {
			t.Errorf("%v left 5 s before the loss", left)
		}
		time.Sleep(time.Minute)
		if left := k.Left(); left != 0 || k.Lost() == nil {
			t.Errorf("%v left of a lock that is lost: %v", left, k.Lost())
		}
		k.Release(t.Context())
		if left := k.Left(); left != 0 {
			t.Errorf("%v left of a lock that was released", left)
		}
	})
}

// TestHeldEndsWithTheLoss: Held ends with the loss of a broken lock, whenever the lock is
// released.
func TestHeldEndsWithTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		m := w.machine()
		k, err := m.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		if _, err := w.machine().Break(t.Context(), BreakOptions{}); err != nil {
			t.Fatal(err)
		}
		<-k.Context().Done()
		time.Sleep(20 * time.Second)
		mustRelease(t, k)
		m.Flush(t.Context())
		for _, e := range m.seen {
			if e.Kind != EventAcquired && (e.Held <= 0 || e.Held > 11*time.Second) {
				t.Errorf("%s: held for %v", e.Kind, e.Held)
			}
		}
	})
}

// TestEventsNameTheLock: an event has the lock's name and its time held. The time ends with
// the loss, and a resumed lock's begins anew.
func TestEventsNameTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		m := w.machine(func(o *Options) { o.Name = "photos" })
		k, err := m.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		time.Sleep(10 * time.Second)
		m.hooks.Before(outage)
		<-k.Context().Done()
		m.hooks.Before(nil)
		k, err = k.Resume(t.Context())
		mustLock(t, k, err)
		time.Sleep(7 * time.Second)
		mustRelease(t, k)
		m.Flush(t.Context())
		held := map[EventKind]time.Duration{EventAcquired: 0, EventLost: 55 * time.Second, EventResumed: 0, EventReleased: 7 * time.Second}
		for _, e := range m.seen {
			if e.Name != "photos" {
				t.Errorf("%s: the lock's name is %q", e.Kind, e.Name)
			}
			if want, ok := held[e.Kind]; ok && e.Held != want {
				t.Errorf("%s: held for %v, want %v", e.Kind, e.Held, want)
			}
			delete(held, e.Kind)
		}
		if len(held) > 0 {
			t.Errorf("not in the error: %v", held)
		}
	})
}
