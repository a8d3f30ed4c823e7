package replock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/retry"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

var errWork = errors.New("the work failed")

// TestDo: Do runs the work under the lock, releases the lock, and returns the work's error.
func TestDo(t *testing.T) {
	for _, want := range []error{nil, errWork} {
		do(t, func(t *testing.T, w *world) {
			m, other := w.machine(), w.machine()
			ctx := context.WithValue(t.Context(), valueKey{}, "value")
			ran := 0
			err := m.Do(ctx, Exclusive, "prune", func(ctx context.Context) error {
				ran++
				if ctx.Err() != nil || ctx.Value(valueKey{}) != "value" {
					t.Errorf("the work's context: %v, %v", ctx.Err(), ctx.Value(valueKey{}))
				}
				other.refused(t, Shared)
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
	do(t, func(t *testing.T, w *world) {
		m, other := w.machine(), w.machine()
		k := other.takes(t, Shared)
		work := func(context.Context) error {
			t.Error("it was done")
			return nil
		}
		err := m.Do(t.Context(), Exclusive, "prune", work, Wait(10*time.Second))
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
		w.leavesNothing(k)
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
	down := func(w *world, m *machine) { m.hooks.Before(outage) }
	sleeps := func(w *world, m *machine) { down(w, m); m.clock.jump(time.Minute) }
	for _, c := range []struct {
		name string
		lose func(*world, *machine)
		work func(context.Context) error
		errs []error
	}{
		{"overslept, and unseen", sleeps, func(context.Context) error { return nil }, nil},
		{"broken, and unseen", breaks, func(context.Context) error { return nil }, nil},
		{"broken, and it fails", breaks, func(context.Context) error { return errWork }, []error{errWork}},
		{"broken, and seen", breaks, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, []error{context.Canceled}},
		{"broken, and named", breaks, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, nil},
		{"outage", down, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, []error{context.Canceled, errOutage}},
	} {
		sub(t, c.name, mem.Options{}, func(t *testing.T, w *world) {
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
	}
}

// TestDoReturnsTheErrorsOfBoth: Do returns the work's error beside that of the release, after which the lock
// expires, and the cause of the end of its context.
func TestDoReturnsTheErrorsOfBoth(t *testing.T) {
	for _, failure := range []error{nil, errOutage} {
		do(t, func(t *testing.T, w *world) {
			m := w.machine()
			ctx, quit := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Minute, func() { quit(errQuit) })
			err := m.Do(ctx, Shared, "backup", func(ctx context.Context) error {
				m.hooks.Before(fails("delete", "", failure))
				<-ctx.Done()
				return context.Cause(ctx)
			})
			if !errors.Is(err, errQuit) || errors.Is(err, errOutage) != (failure != nil) || errors.Is(err, ErrLost) || failure == nil && err != errQuit {
				t.Errorf("got %v", err)
			}
			if left := len(w.keys()); (left == 0) != (failure == nil) {
				t.Errorf("%d objects are left", left)
			}
		})
	}
}

// TestDoReleasesWhenTheWorkPanics: otherwise the lock would be refreshed for ever.
func TestDoReleasesWhenTheWorkPanics(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
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
	do(t, func(t *testing.T, w *world) {
		m, k := w.holder(t, Shared)
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
	do(t, func(t *testing.T, w *world) {
		m, k := w.holder(t, Shared)
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
	do(t, func(t *testing.T, w *world) {
		m, k := w.holder(t, Shared, func(o *Options) { o.Name = "photos" })
		time.Sleep(10 * time.Second)
		m.hooks.Before(outage)
		<-k.Context().Done()
		m.hooks.Before(nil)
		k = mustResume(t, k)
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

type valueKey struct{}

// TestAcquireContextIsNotTheLocks: the context of an acquire bounds the acquire only. The
// acquired lock outlives it, and has its values.
func TestAcquireContextIsNotTheLocks(t *testing.T) {
	bothModes(t, mem.Options{}, func(t *testing.T, w *world, mode Mode) {
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
		w.leavesNothing(k)
	})
}

// errQuit is the cause of a parent's end.
var errQuit = errors.New("the program quits")

// TestParentEndsTheLocksContext: the parent's end ends the lock's context, and not the lock,
// which is held until it is released. Renew and Check return errors, because the work must
// stop.
func TestParentEndsTheLocksContext(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		parent, quit := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "parent's"))
		k := w.machine().takes(t, Exclusive, Parent(parent))
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
		w.leavesNothing(k)
	})
}

// TestParentEndsTheAcquire: once the parent has ended, an acquire returns at once, since the
// work can't begin any more.
func TestParentEndsTheAcquire(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		first := w.machine().takes(t, Shared)
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
		w.leavesNothing(first)
	})
}

// TestResumedLockKeepsItsParent: a resumed lock takes no values and no end from Resume's
// context.
func TestResumedLockKeepsItsParent(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m := w.machine()
		parent, quit := context.WithCancelCause(t.Context())
		k := m.takes(t, Shared, Parent(parent))
		m.hooks.Before(outage)
		<-k.Context().Done()
		m.hooks.Before(nil)
		ctx, cancel := context.WithCancel(t.Context())
		k, err := k.Resume(ctx)
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
		sub(t, c.name, mem.Options{}, func(t *testing.T, w *world) {
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
			w.leavesNothing(first)
		})
	}
}

// TestContextEndsWithoutHolders: if no holder keeps it out when its context ends, an acquire
// names none.
func TestContextEndsWithoutHolders(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
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
	do(t, func(t *testing.T, w *world) {
		stuck := make(chan struct{})
		a := w.machine(func(o *Options) {
			o.Observe = func(e Event) {
				if e.Kind == EventRefreshFailed {
					<-stuck
				}
			}
		})
		b := w.machine()
		k := a.takes(t, Shared)
		a.hooks.Before(outage)
		time.Sleep(65 * time.Second)
		b.takes(t, Exclusive)
		if alive(k) {
			t.Error("both in: the context outlives its deadline while the logger blocks")
		}
		close(stuck)
	})
}

// TestFenceNeedsConditions: a fence needs conditions that the store keeps, and survives a lost
// answer and a contender.
func TestFenceNeedsConditions(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		p := w.mem.Properties()
		k, err := w.machine().Exclusive(t.Context(), "x", Fence())
		if kept := p.IfAbsent == store.Kept && p.IfMatch == store.Kept; (k != nil) != kept || kept == errors.Is(err, ErrFence) {
			t.Errorf("%+v: %v", p, err)
		}
		if k != nil {
			k.Release(t.Context())
		}
	})
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		for want := uint64(1); want < 4; want++ {
			var lost, raced atomic.Bool
			a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if r.Op == "put" && strings.HasSuffix(r.Key, "lock-fence") && want == 3 && raced.CompareAndSwap(false, true) {
					w.put(r.Key, []byte(`{"fence":10,"id":"another"}`)) // a late put of an earlier holder
				}
				return nil
			})
			a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
				if r.Op == "put" && strings.HasSuffix(r.Key, "lock-fence") && lost.CompareAndSwap(false, true) && err == nil {
					return errOutage
				}
				return err
			})
			k := a.takes(t, Exclusive, Fence())
			expect := want
			if want == 3 {
				expect = 11
			}
			if n, _ := k.Fence(); n != expect {
				t.Errorf("fence %d, want %d", n, expect)
			}
			k.Release(t.Context())
		}
	})
}

func TestFenceGrows(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		for want := uint64(1); want <= 3; want++ {
			k := w.machine().takes(t, Exclusive, Fence())
			if got, ok := k.Fence(); !ok || got != want {
				t.Errorf("fence %d %v, want %d", got, ok, want)
			}
			mustRelease(t, k)
		}
		k := w.machine().takes(t, Shared, Fence())
		if _, ok := k.Fence(); ok {
			t.Error("a shared lock has a fence")
		}
		k.Release(t.Context())

		w.put("index/lock-fence", []byte("not json"))
		if k, err := w.machine().Exclusive(t.Context(), "prune", Fence()); !errors.Is(err, ErrFence) || k != nil {
			t.Errorf("with an unreadable fence: %v", err)
		}
		if keys := w.keys(); len(keys) != 1 {
			t.Errorf("left over: %v", keys)
		}
	})
}

// TestLastWords: if the store says within a moment of a context's end why a request failed,
// the caller gets that error. A store that ignores the context delays the caller for no longer
// than that.
func TestLastWords(t *testing.T) {
	const timeout = time.Second
	words, why := errors.New("the disk is asleep"), errors.New("interrupted")
	says := func(ctx context.Context) error { return errors.Join(words, ctx.Err()) }
	for name, c := range map[string]struct {
		late     time.Duration // after the context's end
		says     func(context.Context) error
		canceled bool // by the caller, with a cause
		want     []error
		took     time.Duration
	}{
		"it says why":                 {retry.LastWords / 2, says, false, []error{words, context.DeadlineExceeded}, timeout + retry.LastWords/2},
		"it did it after all":         {retry.LastWords / 2, func(context.Context) error { return nil }, false, nil, timeout + retry.LastWords/2},
		"it says nothing":             {time.Hour, says, false, []error{context.DeadlineExceeded}, timeout + retry.LastWords},
		"canceled, and it says why":   {retry.LastWords / 2, says, true, []error{words, why}, timeout/2 + retry.LastWords/2},
		"canceled, and says no more":  {retry.LastWords / 2, context.Context.Err, true, []error{why}, timeout/2 + retry.LastWords/2},
		"canceled, and done":          {retry.LastWords / 2, func(context.Context) error { return nil }, true, nil, timeout/2 + retry.LastWords/2},
		"canceled, it says nothing":   {time.Hour, says, true, []error{why}, timeout/2 + retry.LastWords},
		"canceled, refused meanwhile": {retry.LastWords / 2, func(context.Context) error { return words }, true, []error{words}, timeout/2 + retry.LastWords/2},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.canceled {
				time.AfterFunc(timeout/2, func() { cancel(why) })
			}
			start := time.Now()
			_, err := once(ctx, timeout, "put k", func(ctx context.Context) (nothing, error) {
				<-ctx.Done()
				time.Sleep(c.late)
				return nothing{}, c.says(ctx)
			})
			if took := time.Since(start); took != c.took {
				t.Errorf("%s: took %v, want %v", name, took, c.took)
			}
			if (err == nil) != (len(c.want) == 0) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			for _, want := range c.want {
				if !errors.Is(err, want) {
					t.Errorf("%s: %q isn't %q", name, err, want)
				}
			}
			if !c.canceled && err != nil && !strings.HasPrefix(err.Error(), "no answer within 1s: put k: ") {
				t.Errorf("%s: %q", name, err)
			}
			time.Sleep(c.late) // a later message is lost
		})
	}
}

// TestNothingSentAfterTheEnd: no request is sent for a caller whose context has ended, so that
// the caller isn't delayed once for each request.
func TestNothingSentAfterTheEnd(t *testing.T) {
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := once(ctx, time.Second, "put k", func(context.Context) (nothing, error) {
		t.Error("sent")
		return nothing{}, nil
	})
	if err != why {
		t.Errorf("%v, want %v", err, why)
	}
}

// TestHangingRequestLeavesTimeForAnother: the budget of a request has time for a second send on a
// slow store if the first is never answered.
func TestHangingRequestLeavesTimeForAnother(t *testing.T) {
	for ttl, slow := range map[time.Duration]time.Duration{
		MinTTL:         400 * time.Millisecond,
		DefaultTTL:     2 * time.Second,
		24 * time.Hour: 2 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newWorld(t, mem.Options{}).machine(func(o *Options) { o.TTL = ttl })
			sends := 0
			_, err := repeat(t.Context(), m.Locker, "put k", func(ctx context.Context) (nothing, error) {
				answered := make(<-chan time.Time)
				if sends++; sends > 1 {
					answered = time.After(slow)
				}
				select {
				case <-answered:
					return nothing{}, nil
				case <-ctx.Done():
					return nothing{}, ctx.Err()
				}
			})
			if err != nil {
				t.Errorf("ttl %v: %v after %d sends", ttl, err, sends)
			}
		})
	}
}
