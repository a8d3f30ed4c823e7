package replock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/retry"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/memory"
)

var errWork = errors.New("the work failed")

// TestDo: Do runs the work under the lock, releases the lock, and returns the work's error.
func TestDo(t *testing.T) {
	eachOf(t, []error{nil, errWork}, func(t *testing.T, w *world, want error) {
		ctx := context.WithValue(t.Context(), valueKey{}, "value")
		ran := 0
		err := w.machine().Do(ctx, Exclusive, "prune", func(ctx context.Context) error {
			ran++
			assert.That(t, ctx.Err() == nil && ctx.Value(valueKey{}) == "value",
				"the work's context: %v, %v", ctx.Err(), ctx.Value(valueKey{}))
			w.machine().refused(t, Shared)
			return want
		})
		assert.That(t, err == want && ran == 1, "got %v, and the work was done %d times", err, ran)
		w.empty()
	})
}

// TestDoWithoutTheLock: Do doesn't run the work without the lock.
func TestDoWithoutTheLock(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m, k := w.machine(), w.machine().takes(t, Shared)
		try := func(mode Mode, opts ...AcquireOption) error {
			return m.Do(t.Context(), mode, "x", func(context.Context) error { t.Error("it was done"); return nil }, opts...)
		}
		held := mustHeld(t, nil, try(Exclusive, WithWait(10*time.Second)))
		assert.That(t, held.Waited >= 10*time.Second, "held by another: %v", held)
		for _, mode := range []Mode{0, 3} {
			assert.That(t, try(mode) != nil, "mode %d: no error", mode)
		}
		m.hooks.Before(outage)
		isAll(t, try(Shared), errOutage)
		w.leavesNothing(k)
	})
}

// TestDoReportsALoss: Do returns an error for a lost lock, even if the work didn't notice, or failed with its context.
func TestDoReportsALoss(t *testing.T) {
	breaks := func(w *world, _ *machine) { w.breakAll() }
	down := func(_ *world, m *machine) { m.hooks.Before(outage) }
	sleeps := func(w *world, m *machine) { down(w, m); m.clock.jump(time.Minute) }
	ends := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, c := range []struct {
		name string
		lose func(*world, *machine)
		work func(context.Context) error
		errs []error
	}{
		{"overslept, and unseen", sleeps, func(context.Context) error { return nil }, nil},
		{"broken, and unseen", breaks, func(context.Context) error { return nil }, nil},
		{"broken, and it fails", breaks, func(context.Context) error { return errWork }, []error{errWork}},
		{"broken, and seen", breaks, ends, []error{context.Canceled}},
		{"broken, and named", breaks, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, nil},
		{"outage", down, ends, []error{context.Canceled, errOutage}},
	} {
		sub(t, c.name, memory.Options{}, func(t *testing.T, w *world) {
			m := w.machine()
			err := m.Do(t.Context(), Exclusive, "prune", func(ctx context.Context) error {
				c.lose(w, m)
				return c.work(ctx)
			})
			assert.That(t, !strings.Contains(err.Error(), "\n") && strings.Count(err.Error(), "lock lost") == 1, "got %v", err)
			isAll(t, err, append(c.errs, ErrLost)...)
		})
	}
}

// TestDoReturnsTheErrorsOfBoth: Do returns the work's error and that of the release, after which the lock expires.
func TestDoReturnsTheErrorsOfBoth(t *testing.T) {
	eachOf(t, []error{nil, errOutage}, func(t *testing.T, w *world, failure error) {
		m := w.machine()
		ctx, quit := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { quit(errQuit) })
		err := m.Do(ctx, Shared, "backup", func(ctx context.Context) error {
			m.hooks.Before(fails("delete", "", failure))
			<-ctx.Done()
			return context.Cause(ctx)
		})
		isAll(t, err, errQuit)
		assert.That(t, errors.Is(err, errOutage) == (failure != nil) && !errors.Is(err, ErrLost), "got %v", err)
		assert.That(t, (len(w.keys()) == 0) == (failure == nil), "left: %v", w.keys())
	})
}

// TestDoReleasesWhenTheWorkPanics: otherwise the lock would be refreshed for ever.
func TestDoReleasesWhenTheWorkPanics(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		defer func() {
			assert.That(t, recover() == "panic", "the panic is not passed on")
			w.empty()
		}()
		_ = w.machine().Do(t.Context(), Exclusive, "prune", func(context.Context) error { panic("panic") })
	})
}

// TestNoStore: New returns an error for a nil store; the first lock must not panic.
func TestNoStore(t *testing.T) {
	l, err := New(nil, Options{})
	assert.That(t, err != nil && l == nil, "got %v, %v", l, err)
}

// TestEventsNameTheLock: an event has the lock's name and its time held, which ends with a loss, whenever the lock is
// released, and begins anew with a resumed lock.
func TestEventsNameTheLock(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m, k := w.holder(t, Shared, func(o *Options) { o.Name = "photos" })
		time.Sleep(10 * time.Second)
		m.outlives(t, k)
		mustResume(t, k)
		time.Sleep(7 * time.Second)
		w.delete(k.Key())
		ends(t, k, DefaultLook)
		time.Sleep(20 * time.Second)
		mustRelease(t, k)
		var held []string
		for _, e := range m.seen() {
			equal(t, fmt.Sprint(e.Kind, ": name"), e.Name, "photos")
			if e.Kind != EventRefreshFailed && e.Kind != EventGaveUp && e.Kind != EventRetrying {
				held = append(held, fmt.Sprint(e.Kind, " ", e.Held.Round(5*time.Second)))
			}
		}
		equal(t, "events", strings.Join(held, ", "), "acquired 0s, lost 55s, resumed 0s, lost 10s, released 10s")
	})
}

type valueKey struct{}

// TestParentOfTheLocksContext: the lock's context is a child of the acquire's, or of the one that Parent names
// instead. It has the values of that parent, and ends with it and not with the other one. The lock is held
// until it is released. Refresh and Check return errors, because the work must stop.
func TestParentOfTheLocksContext(t *testing.T) {
	for _, named := range yesNo {
		bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
			parent, quit := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "value"))
			ctx, opts := parent, []AcquireOption{}
			if named {
				soon, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				ctx, opts = soon, []AcquireOption{WithParent(parent)}
			}
			k, err := w.machine().lock(ctx, mode, "work", opts...)
			mustLock(t, k, err)
			time.Sleep(5 * time.Minute)
			assert.OK(t, k.Refresh(t.Context()))
			equal(t, "the value of the lock's context", k.Context().Value(valueKey{}), "value")

			quit(errQuit)
			synctest.Wait()
			isAll(t, context.Cause(k.Context()), errQuit)
			for name, look := range map[string]func(context.Context) error{"Refresh": k.Refresh, "Check": k.Check} {
				err := look(t.Context())
				assert.That(t, errors.Is(err, errQuit) && !errors.Is(err, ErrLost), "%s: %v", name, err)
			}
			time.Sleep(5 * time.Minute)
			w.machine().refused(t, Exclusive)
			assert.That(t, k.Lost() == nil && k.Left() != 0, "lost although it is refreshed until release: %v", k.Lost())
			w.leavesNothing(k)
		})
	}
}

// errQuit is the cause of a parent's end.
var errQuit = errors.New("the program quits")

// TestParentEndsTheAcquire: once the parent has ended, an acquire returns at once: the work can't begin any more.
func TestParentEndsTheAcquire(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		first := w.machine().takes(t, Shared)
		parent, quit := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { quit(errQuit) })
		for _, mode := range []Mode{Exclusive, Shared} { // waits until the parent ends, and comes after its end
			w.machine().fails(t, mode, errQuit, WithParent(parent), WithWait(time.Hour))
		}
		w.leavesNothing(first)
	})
}

// TestParentEndsTheResume: once the parent has ended, a lock isn't resumed: the work can't go on any more. A resumed
// lock keeps its parent, and doesn't end with Resume's context.
func TestParentEndsTheResume(t *testing.T) {
	for _, end := range []string{"before", "while it waits", "after"} {
		sub(t, end, memory.Options{}, func(t *testing.T, w *world) {
			m := w.machine()
			parent, quit := context.WithCancelCause(t.Context())
			k := m.takes(t, Exclusive, WithParent(parent))
			m.lose(t, k)
			switch end {
			case "before":
				quit(errQuit)
				m.hooks.Before(nil)
			case "while it waits":
				time.AfterFunc(time.Minute, func() { quit(errQuit) })
			default:
				m.hooks.Before(nil)
				ctx, cancel := context.WithCancel(t.Context())
				assert.OK(t, k.Resume(ctx))
				cancel()
				time.Sleep(time.Minute)
				assert.OK(t, context.Cause(k.Context()))
				quit(errQuit)
				synctest.Wait()
				isAll(t, context.Cause(k.Context()), errQuit)
				return
			}
			err := k.Resume(t.Context())
			isAll(t, err, errQuit)
			assert.That(t, !errors.Is(err, ErrLost) && !alive(k), "resumed: %v", err)
			m.hooks.Before(nil)
			mustRelease(t, k)
			time.Sleep(2 * DefaultTTL) // what is left has expired
			w.machine().takes(t, Exclusive)
		})
	}
}

// TestWaitEndedByItsContext: if its context ends while others keep it out, an acquire returns
// an error for both, the holders and the context. Nothing of it is left.
func TestWaitEndedByItsContext(t *testing.T) {
	for _, c := range []struct {
		name   string
		mode   Mode
		cause  error            // nil: a deadline
		before hookstore.Before // of a request shortly before
		errs   []error
	}{
		{"deadline, exclusive", Exclusive, nil, nil, []error{context.DeadlineExceeded}},
		{"deadline, shared", Shared, nil, nil, []error{context.DeadlineExceeded}},
		{"canceled", Exclusive, context.Canceled, nil, []error{context.Canceled}},
		{"canceled with a cause", Shared, errQuit, nil, []error{context.Canceled, errQuit}},
		{"in the midst of a look", Exclusive, nil, hangs("list", ""), []error{context.DeadlineExceeded}},
		{"when the store fails", Shared, nil, outage, []error{context.DeadlineExceeded}},
	} {
		sub(t, c.name, memory.Options{}, func(t *testing.T, w *world) {
			first, waiter := w.machine().takes(t, Exclusive), w.machine()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if c.cause != nil {
				var quit context.CancelCauseFunc
				ctx, quit = context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { quit(c.cause) })
			}
			time.AfterFunc(40*time.Second, func() { waiter.hooks.Before(c.before) })
			time.AfterFunc(time.Minute, func() { waiter.hooks.Before(nil) })
			k, err := waiter.lock(ctx, c.mode, "the second", WithWait(time.Hour))
			held := mustHeld(t, k, err)
			isAll(t, err, append(c.errs, ErrHeld)...)
			assert.That(t, len(held.Holders) == 1 && held.Holders[0].Operation == "x" && strings.Contains(err.Error(), "m1 (pid 101)"),
				"doesn't name the holder: %v", err)
			assert.That(t, held.Waited >= time.Minute && held.Waited <= 65*time.Second, "waited for %v", held.Waited)
			assert.That(t, waiter.saw(EventBlocked) == 1, "the observer got %d events", waiter.saw(EventBlocked))
			w.leavesNothing(first)
		})
	}
}

// TestContextEndsWithoutHolders: if no holder keeps it out when its context ends, an acquire names none.
func TestContextEndsWithoutHolders(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m := w.machine()
		m.hooks.Before(outage)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		k, err := m.Exclusive(ctx, "prune", WithWait(time.Hour))
		assert.That(t, k == nil && !errors.Is(err, ErrHeld) && errors.Is(err, context.DeadlineExceeded), "got %v", err)
	})
}

// TestPutOutlivesItsContext: if an acquire's context ends while a put is under way, the put isn't cancelled, because the
// store could still apply it. The acquire waits for its answer, and leaves nothing.
func TestPutOutlivesItsContext(t *testing.T) {
	for name, ends := range map[string]func(ctx context.Context) (context.Context, context.CancelFunc){
		"at its deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		},
		"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		},
	} {
		sub(t, name, memory.Options{}, func(t *testing.T, w *world) {
			m, cancelled := w.machine(), 0
			m.hooks.Before(when("put", "", func(ctx context.Context, _ hookstore.Request) error {
				time.Sleep(2 * time.Second)
				if ctx.Err() != nil {
					cancelled++
				}
				return nil
			}))
			ctx, cancel := ends(t.Context())
			defer cancel()
			_, err := m.Shared(ctx, "backup")
			assert.That(t, errors.Is(err, ctx.Err()) && cancelled == 0, "got %v; %d puts were cancelled", err, cancelled)
			w.empty()
		})
	}
}

// TestContextEndsThoughTheObserverBlocks: the lock's context ends at its deadline even if the observer blocks.
func TestContextEndsThoughTheObserverBlocks(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		stuck := make(chan struct{})
		defer close(stuck)
		a, k := w.holder(t, Shared, func(o *Options) {
			o.Observe = func(e Event) {
				if e.Kind == EventRefreshFailed {
					<-stuck
				}
			}
		})
		a.hooks.Before(outage)
		time.Sleep(65 * time.Second)
		w.machine().takes(t, Exclusive)
		assert.That(t, !alive(k), "both in: the context outlives its deadline while the logger blocks")
	})
}

// TestFenceOfAPausedAcquirer: an acquirer that is paused after a look is refused, or has a smaller number than the next
// holder, so that the protected resource refuses its writes.
func TestFenceOfAPausedAcquirer(t *testing.T) {
	for paused := range int32(2) {
		do(t, func(t *testing.T, w *world) {
			var armed atomic.Bool
			var next *Lock
			var a *machine
			a = w.machine(func(o *Options) {
				o.Clock = hookedClock{o.Clock, func() {
					if !armed.CompareAndSwap(true, false) {
						return
					}
					a.clock.pause(2 * time.Minute)
					time.Sleep(time.Minute + 5*time.Second)
					next = w.machine().takes(t, Exclusive, WithFencingToken())
					time.Sleep(time.Minute)
				}}
			})
			var lists atomic.Int32
			a.hooks.After(answered("list", allLocks, func(hookstore.Request) { armed.Store(lists.Add(1) == paused+1) }))
			k, err := a.TryExclusive(t.Context(), "x", WithFencingToken())
			if next == nil {
				t.Fatal("it wasn't paused")
			}
			if err != nil {
				return
			}
			n, _ := k.FencingToken()
			later, _ := next.FencingToken()
			assert.That(t, n < later, "the paused acquirer has the number %d, and the next holder %d", n, later)
			k.Release(t.Context())
		})
	}
}

// hookedClock calls a function before each Elapsed.
type hookedClock struct {
	Clock
	before func()
}

func (c hookedClock) Elapsed() time.Duration {
	c.before()
	return c.Clock.Elapsed()
}

// TestFenceOutlastsACrash: each put of the fence is durable, because a crash of the machine must not set its number back.
// No other put is: the holders end with their machine.
func TestFenceOutlastsACrash(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		fences := 0
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" {
				fence := strings.HasSuffix(r.Key, "lock-fence")
				assert.Equal(t, r.Opts.Durable, fence, r.Key)
				if fence {
					fences++
				}
			}
			return nil
		})
		for range 2 {
			mustRelease(t, a.takes(t, Exclusive, WithFencingToken()))
		}
		assert.Equal(t, fences, 2, "puts of the fence")
	})
}

// TestFenceGrows: each later holder has a larger number, also after a lost answer and a late put of an earlier holder. A
// resumed lock keeps its number, and a shared one has none. Without a number in the object, or with the largest one, the
// acquire fails, and leaves the object as it is.
func TestFenceGrows(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		var k *Lock
		for n, want := range []uint64{1, 2, 3, 11} {
			a.hooks.Before(first("put", "lock-fence", func(r hookstore.Request) error {
				switch n {
				case 2:
					w.put(r.Key, r.Body)
					return errOutage
				case 3:
					w.put(r.Key, []byte(`{"fence":10,"id":"another"}`))
				}
				return nil
			}))
			k = a.takes(t, Exclusive, WithFencingToken())
			if got, ok := k.FencingToken(); want == 11 {
				a.outlives(t, k)
				mustResume(t, k)
			} else {
				assert.That(t, ok && got == want, "fence %d %v, want %d", got, ok, want)
				mustRelease(t, k)
			}
		}
		got, _ := k.FencingToken()
		equal(t, "fence of a resumed lock", got, 11)
		mustRelease(t, k)
		k = w.machine().takes(t, Shared, WithFencingToken())
		_, ok := k.FencingToken()
		assert.That(t, !ok, "a shared lock has a fence")
		k.Release(t.Context())

		for _, body := range []string{"not json", `{"id":"another"}`, fmt.Sprintf(`{"fence":%d}`, uint64(math.MaxUint64))} {
			w.put("index/lock-fence", []byte(body))
			w.machine().fails(t, Exclusive, ErrNoFencingToken, WithFencingToken())
			w.stores("index/lock-fence")
			w.has("index/lock-fence", []byte(body))
		}
	})
}

// TestLastWords: if the store reports within a moment after a context's end why a request failed, the caller gets that
// error. A store that ignores the context delays the caller for no longer than that.
func TestLastWords(t *testing.T) {
	const timeout, soon = time.Second, retry.LastWords / 2
	words, why := errors.New("the disk is asleep"), errors.New("interrupted")
	says := func(ctx context.Context) error { return fault.Join(words, ctx.Err()) }
	done := func(context.Context) error { return nil }
	for name, c := range map[string]struct {
		late     time.Duration // after the context's end
		says     func(context.Context) error
		canceled bool // by the caller, with a cause, in half the time
		want     []error
	}{
		"it says why":                 {soon, says, false, []error{words, context.DeadlineExceeded}},
		"it did it after all":         {soon, done, false, nil},
		"it says nothing":             {time.Hour, says, false, []error{context.DeadlineExceeded}},
		"canceled, and it says why":   {soon, says, true, []error{words, why}},
		"canceled, and says no more":  {soon, context.Context.Err, true, []error{why}},
		"canceled, and done":          {soon, done, true, nil},
		"canceled, it says nothing":   {time.Hour, says, true, []error{why}},
		"canceled, refused meanwhile": {soon, func(context.Context) error { return words }, true, []error{words}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ends := timeout
			if c.canceled {
				ends = timeout / 2
				time.AfterFunc(ends, func() { cancel(why) })
			}
			start := time.Now()
			_, err := once(ctx, "put k", func(ctx context.Context) (nothing, error) {
				<-ctx.Done()
				time.Sleep(c.late)
				return nothing{}, c.says(ctx)
			})(timeout)
			ends += min(c.late, retry.LastWords)
			took(t, start, ends, ends)
			assert.That(t, (err == nil) == (len(c.want) == 0), "%s: %v, want %v", name, err, c.want)
			isAll(t, err, c.want...)
			assert.That(t, c.canceled || err == nil || strings.HasPrefix(err.Error(), "no answer within 1s: put k: "), "%s: %q", name, err)
			assert.That(t, c.canceled || err == nil || fault.Exit(err) == fault.ExitUnavailable, "%s: exit code %d", name, fault.Exit(err))
			time.Sleep(c.late) // a later message is lost
		})
	}
}

// TestNothingSentAfterTheEnd: no request is sent for a caller whose context has ended, to delay it.
func TestNothingSentAfterTheEnd(t *testing.T) {
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := once(ctx, "put k", func(context.Context) (nothing, error) {
		t.Error("sent")
		return nothing{}, nil
	})(time.Second)
	assert.That(t, err == why, "%v, want %v", err, why)
}

// TestHangingRequestLeavesTimeForAnother: on a slow store, a send that hangs leaves time for a second one.
func TestHangingRequestLeavesTimeForAnother(t *testing.T) {
	eachOf(t, []time.Duration{MinTTL, DefaultTTL, MaxTTL}, func(t *testing.T, w *world, ttl time.Duration) {
		m := w.machine(func(o *Options) { o.TTL = ttl })
		sends := 0
		_, err := repeat(t.Context(), m.Locker, m.times.Timeout, "put k", func(ctx context.Context) (nothing, error) {
			if sends++; sends == 1 {
				<-ctx.Done()
			}
			return nothing{}, clock.Sleep(ctx, m.clock, min(ttl/25, 2*time.Second))
		})
		assert.That(t, err == nil, "ttl %v: %v after %d sends", ttl, err, sends)
	})
}

// TestLastRequestsShareTheTime: shortly before the deadline a refresh that hangs leaves time for another one. So a lock
// that was acquired late isn't lost by its first request.
func TestLastRequestsShareTheTime(t *testing.T) {
	bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
		m := w.machine(func(o *Options) { o.TTL = MinTTL })
		k := m.takes(t, mode)
		var hung atomic.Bool
		m.hooks.Before(when("put", k.Key(), func(ctx context.Context, _ hookstore.Request) error {
			switch left := k.Left(); {
			case left > 900*time.Millisecond:
				return errOutage
			case hung.CompareAndSwap(false, true):
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}))
		time.Sleep(MinTTL)
		assert.That(t, hung.Load(), "no request has hung")
		lives(t, k)
	})
}
