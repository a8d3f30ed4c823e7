package locking_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/memory"
)

const ttl = time.Minute

var errDown = errors.New("down")

// backend is one in memory whose methods a test can replace.
type backend struct {
	*memory.Backend
	clock   *leapclock.Clock
	tryLock func(context.Context) error
	renew   func(context.Context) error
	release func(context.Context) error
	renewed []time.Duration
}

func newBackend() *backend {
	c := leapclock.New()
	return &backend{Backend: memory.New(c), clock: c}
}

func (b *backend) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	if b.tryLock != nil {
		if err := b.tryLock(ctx); err != nil {
			return locking.Handle{}, false, err
		}
	}
	return b.Backend.TryLock(ctx, key, ttl)
}

func (b *backend) Renew(ctx context.Context, h locking.Handle) error {
	b.renewed = append(b.renewed, b.clock.Elapsed())
	if b.renew != nil {
		if err := b.renew(ctx); err != nil {
			return err
		}
	}
	return b.Backend.Renew(ctx, h)
}

func (b *backend) Release(ctx context.Context, h locking.Handle) error {
	if b.release != nil {
		if err := b.release(ctx); err != nil {
			return err
		}
	}
	return b.Backend.Release(ctx, h)
}

func (b *backend) guard(t *testing.T, f func(context.Context) error) (bool, error) {
	t.Helper()
	return locking.GuardAt(t.Context(), b.clock, b, locking.RequireGlobal, "k", ttl, f)
}

// isFree checks that nothing is held.
func (b *backend) isFree(t *testing.T) {
	t.Helper()
	if info, err := b.Inspect(t.Context(), "k"); info != nil || err != nil {
		t.Errorf("still held: %+v, %v", info, err)
	}
}

// runs returns a function that takes its time, unless its context ends.
func runs(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
		return nil
	}
}

// in runs a test in a bubble, with a backend.
func in(t *testing.T, f func(t *testing.T, b *backend)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newBackend()) })
}

// TestHints: each hint runs with a lock, without one, or not at all.
func TestHints(t *testing.T) {
	for _, c := range []struct {
		name                string
		hint                locking.Hint
		none, held, broken  bool
		ran, locked, failed bool
	}{
		{name: "require", hint: locking.RequireGlobal, ran: true, locked: true},
		{name: "require, none", hint: locking.RequireGlobal, none: true, failed: true},
		{name: "require, held", hint: locking.RequireGlobal, held: true, locked: true},
		{name: "require, broken", hint: locking.RequireGlobal, broken: true, failed: true},
		{name: "prefer", hint: locking.PreferGlobal, ran: true, locked: true},
		{name: "prefer, none", hint: locking.PreferGlobal, none: true, ran: true},
		{name: "prefer, held", hint: locking.PreferGlobal, held: true, locked: true},
		{name: "prefer, broken", hint: locking.PreferGlobal, broken: true, failed: true},
		{name: "local", hint: locking.NodeLocal, ran: true},
		{name: "local, none", hint: locking.NodeLocal, none: true, ran: true},
		{name: "unknown", hint: 0, failed: true},
		{name: "unknown, none", hint: 4, none: true, failed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBackend()
			var given locking.Backend = b
			if c.none {
				given = nil
			}
			if c.held {
				_, _, _ = b.Backend.TryLock(t.Context(), "k", ttl)
			}
			if c.broken {
				b.tryLock = func(context.Context) error { return errDown }
			}
			called := false
			ran, err := locking.GuardAt(t.Context(), b.clock, given, c.hint, "k", ttl, func(ctx context.Context) error {
				called = true
				if info, _ := b.Inspect(ctx, "k"); (info != nil) != c.locked {
					t.Errorf("locked: %+v", info)
				}
				return nil
			})
			if ran != c.ran || called != c.ran || (err != nil) != c.failed {
				t.Errorf("ran %v, called %v, %v", ran, called, err)
			}
			if !c.held {
				b.isFree(t)
			}
		})
	}
}

// TestRenewedEachThird: while f runs, the lock is renewed at each third of the ttl; afterwards
// it is free.
func TestRenewedEachThird(t *testing.T) {
	in(t, func(t *testing.T, b *backend) {
		if ran, err := b.guard(t, runs(70*time.Second)); !ran || err != nil {
			t.Errorf("%v, %v", ran, err)
		}
		assert.Equal(t, b.renewed, []time.Duration{20 * time.Second, 40 * time.Second, time.Minute}, "renewed")
		b.isFree(t)
	})
}

// TestGuardInABubble: a program can test its code with Guard, whose clock is the machine's, in a
// testing/synctest bubble.
func TestGuardInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(nil)
		ran, err := locking.Guard(t.Context(), b, locking.RequireGlobal, "k", ttl, func(ctx context.Context) error {
			time.Sleep(100 * ttl)
			_, ok, err := b.TryLock(ctx, "k", ttl)
			assert.That(t, !ok && err == nil, "twice at once: %v, %v", ok, err)
			seen, err := b.Inspect(ctx, "k")
			assert.That(t, err == nil && seen != nil && seen.Renewed.After(seen.Acquired.Add(99*ttl)), "%+v, %v", seen, err)
			return err
		})
		assert.That(t, ran && err == nil, "%v, %v", ran, err)
	})
}

// TestLostEndsTheFunction: the context of f ends when the lock is lost, and never later than
// eleven twelfths of the ttl after the last renewal was sent.
func TestLostEndsTheFunction(t *testing.T) {
	for name, c := range map[string]struct {
		renew func(*backend, context.Context) error
		at    time.Duration
	}{
		"ErrLost":                 {func(*backend, context.Context) error { return locking.ErrLost }, 20 * time.Second},
		"down":                    {func(*backend, context.Context) error { return errDown }, 55 * time.Second},
		"hangs":                   {func(_ *backend, ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 55 * time.Second},
		"hangs and heeds nothing": {func(*backend, context.Context) error { time.Sleep(time.Hour); return errDown }, 55 * time.Second},
		"slow, then down": {func(b *backend, _ context.Context) error {
			if len(b.renewed) > 1 {
				return errDown
			}
			time.Sleep(5 * time.Second) // the ttl counts from the send
			return nil
		}, 75 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *backend) {
				b.renew = func(ctx context.Context) error { return c.renew(b, ctx) }
				errF := errors.New("f was ended")
				ran, err := b.guard(t, func(ctx context.Context) error {
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), locking.ErrLost) || b.clock.Elapsed() != c.at {
						t.Errorf("ended at %v by %v, want %v", b.clock.Elapsed(), context.Cause(ctx), c.at)
					}
					return errF
				})
				assert.That(t, ran && errors.Is(err, locking.ErrLost) && errors.Is(err, errF), "%v, %v", ran, err)
				b.isFree(t)
				time.Sleep(2 * time.Hour) // for the attempt that hangs
			})
		})
	}
}

// TestSuspended: if the machine was suspended for the ttl, the context of f ends at most a second after it woke, and the
// error names the deadline.
func TestSuspended(t *testing.T) {
	in(t, func(t *testing.T, b *backend) {
		ran, err := b.guard(t, func(ctx context.Context) error {
			b.clock.Leap.Add(int64(ttl))
			<-ctx.Done()
			assert.That(t, b.clock.Elapsed() <= ttl+time.Second, "ended at %v", b.clock.Elapsed())
			return nil
		})
		want := fmt.Sprintf("%v: %q: %v", locking.ErrLost, "k", refresh.ErrDeadline)
		assert.That(t, ran && errors.Is(err, locking.ErrLost) && err.Error() == want, "%v, %v, want %s", ran, err, want)
	})
}

// TestReleasedAnyway: the lock is released if the caller's context has ended, if f fails, and
// if f panics.
func TestReleasedAnyway(t *testing.T) {
	in(t, func(t *testing.T, b *backend) {
		b.release = func(ctx context.Context) error { return ctx.Err() }
		ctx, cancel := context.WithCancel(t.Context())
		_, err := locking.GuardAt(ctx, b.clock, b, locking.RequireGlobal, "k", ttl, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		assert.That(t, errors.Is(err, context.Canceled) && !errors.Is(err, locking.ErrLost), "ended: %v", err)
		b.isFree(t)
		if ran, err := b.guard(t, func(context.Context) error { return errDown }); !ran || !errors.Is(err, errDown) {
			t.Errorf("failed: %v, %v", ran, err)
		}
		b.isFree(t)
		func() {
			defer func() { _ = recover() }()
			_, _ = b.guard(t, func(context.Context) error { panic("f") })
			t.Error("no panic")
		}()
		b.isFree(t)
	})
}

// TestRenewedAfterTheCallersEnd: f holds the lock until it returns, even if its context ended
// long before.
func TestRenewedAfterTheCallersEnd(t *testing.T) {
	in(t, func(t *testing.T, b *backend) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := locking.GuardAt(ctx, b.clock, b, locking.RequireGlobal, "k", ttl, func(context.Context) error {
			cancel()
			time.Sleep(3 * ttl)
			return nil
		})
		assert.That(t, err == nil && len(b.renewed) >= 8, "%v, renewed at %v", err, b.renewed)
	})
}

// TestSlowAcquisition: f doesn't run with a lock that is nearly over.
func TestSlowAcquisition(t *testing.T) {
	in(t, func(t *testing.T, b *backend) {
		b.tryLock = func(context.Context) error { b.clock.Leap.Add(int64(55 * time.Second)); return nil }
		if ran, err := b.guard(t, func(context.Context) error { t.Error("ran"); return nil }); ran || err == nil {
			t.Errorf("%v, %v", ran, err)
		}
		b.isFree(t)
	})
}

// TestNotReleased: a release that fails is an error that names the lock, and no loss. A lock that was lost since
// the last renewal is one.
func TestNotReleased(t *testing.T) {
	for failure, want := range map[error]string{errDown: `lock "k" wasn't released: down`, locking.ErrLost: "lock lost"} {
		in(t, func(t *testing.T, b *backend) {
			b.release = func(context.Context) error { return failure }
			ran, err := b.guard(t, runs(time.Second))
			if !ran || err == nil || err.Error() != want || errors.Is(err, locking.ErrLost) != (failure == locking.ErrLost) {
				t.Errorf("%v, %v", ran, err)
			}
		})
	}
}

// TestLossIsToldOnce: a lock that was lost before its release, which finds that too, is one loss.
func TestLossIsToldOnce(t *testing.T) {
	in(t, func(t *testing.T, b *backend) {
		b.renew = func(context.Context) error { return locking.ErrLost }
		b.release = func(context.Context) error { return locking.ErrLost }
		_, err := b.guard(t, runs(time.Minute))
		assert.That(t, errors.Is(err, locking.ErrLost) && strings.Count(err.Error(), "lock lost") == 1, "%v", err)
	})
}

// TestGuardTTL: a ttl that isn't positive is an error, and f doesn't run.
func TestGuardTTL(t *testing.T) {
	for _, ttl := range []time.Duration{0, -1} {
		ran, err := locking.Guard(t.Context(), newBackend(), locking.RequireGlobal, "k", ttl, runs(0))
		assert.That(t, !ran && err != nil && strings.Contains(err.Error(), "the ttl must be positive"), "ttl %v: %v, %v", ttl, ran, err)
	}
}

// watched is a backend that notices a loss.
type watched struct {
	*backend
	lost chan struct{}
}

func (w watched) Watch(locking.Handle) <-chan struct{} { return w.lost }

// TestWatcher: a loss that the backend notices ends the function at once, and a false alarm
// doesn't.
func TestWatcher(t *testing.T) {
	for _, certain := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := watched{newBackend(), make(chan struct{})}
			if certain {
				b.renew = func(context.Context) error { return locking.ErrLost }
			}
			begun := time.Now()
			go func() {
				time.Sleep(time.Second)
				close(b.lost)
			}()
			ran, err := locking.GuardAt(t.Context(), b.clock, b, locking.RequireGlobal, "k", ttl, runs(10*time.Second))
			took := time.Since(begun)
			if !ran || errors.Is(err, locking.ErrLost) != certain || (took == time.Second) != certain {
				t.Errorf("lost %v: ran %v, %v, after %v", certain, ran, err, took)
			}
			assert.That(t, len(b.renewed) == 1 && b.renewed[0] == time.Second, "lost %v: renewed at %v", certain, b.renewed)
		})
	}
}

// TestPage: each example that docs/evidence/locking.md names is one that go test runs, and each is named.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../docs/evidence/locking.md")
	assert.OK(t, err)
	source, err := os.ReadFile("example_test.go")
	assert.OK(t, err)
	for _, name := range regexp.MustCompile("`(Example\\w*)`").FindAllStringSubmatch(string(page), -1) {
		assert.That(t, strings.Contains(string(source), "\nfunc "+name[1]+"() {\n"), "there is no %s", name[1])
	}
	for _, name := range regexp.MustCompile(`(?m)^func (Example\w*)`).FindAllStringSubmatch(string(source), -1) {
		assert.That(t, strings.Contains(string(page), "`"+name[1]+"`"), "the page doesn't name %s", name[1])
	}
}
