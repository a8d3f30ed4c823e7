package locking_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/locking"
)

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
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		if ran, err := b.guard(t, runs(70*time.Second)); !ran || err != nil {
			t.Errorf("%v, %v", ran, err)
		}
		if want := []time.Duration{20 * time.Second, 40 * time.Second, time.Minute}; !slices.Equal(b.renewed, want) {
			t.Errorf("renewed at %v, want %v", b.renewed, want)
		}
		b.isFree(t)
	})
}

// TestLostEndsTheFunction: the context of f ends when the lock is lost, and never later than
// eleven twelfths of the ttl after the last renewal was sent.
func TestLostEndsTheFunction(t *testing.T) {
	for name, c := range map[string]struct {
		renew func(*backend) func(context.Context) error
		at    time.Duration
	}{
		"ErrLost": {func(*backend) func(context.Context) error {
			return func(context.Context) error { return locking.ErrLost }
		}, 20 * time.Second},
		"down": {func(*backend) func(context.Context) error {
			return func(context.Context) error { return errDown }
		}, 55 * time.Second},
		"hangs": {func(*backend) func(context.Context) error {
			return func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		}, 55 * time.Second},
		"hangs and heeds nothing": {func(*backend) func(context.Context) error {
			return func(context.Context) error { time.Sleep(time.Hour); return errDown }
		}, 55 * time.Second},
		"slow, then down": {func(b *backend) func(context.Context) error {
			return func(context.Context) error {
				if len(b.renewed) > 1 {
					return errDown
				}
				time.Sleep(5 * time.Second) // the ttl counts from the send
				return nil
			}
		}, 75 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBackend()
				b.renew = c.renew(b)
				errF := errors.New("f was ended")
				ran, err := b.guard(t, func(ctx context.Context) error {
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), locking.ErrLost) || b.clock.Elapsed() != c.at {
						t.Errorf("ended at %v by %v, want %v", b.clock.Elapsed(), context.Cause(ctx), c.at)
					}
					return errF
				})
				if !ran || !errors.Is(err, locking.ErrLost) || !errors.Is(err, errF) {
					t.Errorf("%v, %v", ran, err)
				}
				b.isFree(t)
				time.Sleep(2 * time.Hour) // for the attempt that hangs
			})
		})
	}
}

// TestSuspend: the time of a suspend counts, and f's context ends within a second of waking.
func TestSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		time.AfterFunc(10*time.Second, func() { b.clock.Leap.Add(int64(time.Hour)) })
		begun := time.Now()
		ran, err := b.guard(t, func(ctx context.Context) error { <-ctx.Done(); return nil })
		if took := time.Since(begun); !ran || !errors.Is(err, locking.ErrLost) || took > 11*time.Second {
			t.Errorf("%v, %v after %v", ran, err, took)
		}
	})
}

// TestLostUnnoticed: a lock that was lost since the last renewal is an ErrLost of the release.
func TestLostUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		b.release = func(context.Context) error { return locking.ErrLost }
		if ran, err := b.guard(t, runs(time.Second)); !ran || !errors.Is(err, locking.ErrLost) {
			t.Errorf("%v, %v", ran, err)
		}
	})
}

// TestReleasedAnyway: the lock is released if the caller's context has ended, if f fails, and
// if f panics.
func TestReleasedAnyway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		b.release = func(ctx context.Context) error { return ctx.Err() }
		ctx, cancel := context.WithCancel(t.Context())
		_, err := locking.GuardAt(ctx, b.clock, b, locking.RequireGlobal, "k", ttl, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, locking.ErrLost) {
			t.Errorf("ended: %v", err)
		}
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
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		ctx, cancel := context.WithCancel(t.Context())
		_, err := locking.GuardAt(ctx, b.clock, b, locking.RequireGlobal, "k", ttl, func(context.Context) error {
			cancel()
			time.Sleep(3 * ttl)
			return nil
		})
		if err != nil || len(b.renewed) < 8 {
			t.Errorf("%v, renewed at %v", err, b.renewed)
		}
	})
}

// TestSlowAcquisition: f doesn't run with a lock that is nearly over.
func TestSlowAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		b.tryLock = func(context.Context) error { b.clock.Leap.Add(int64(55 * time.Second)); return nil }
		if ran, err := b.guard(t, func(context.Context) error { t.Error("ran"); return nil }); ran || err == nil {
			t.Errorf("%v, %v", ran, err)
		}
		b.isFree(t)
	})
}

// TestNotReleased: a release that fails is an error that names the lock, and no loss.
func TestNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		b.release = func(context.Context) error { return errDown }
		ran, err := b.guard(t, runs(time.Second))
		if want := `lock "k" wasn't released: down`; !ran || err == nil || err.Error() != want || errors.Is(err, locking.ErrLost) {
			t.Errorf("%v, %v", ran, err)
		}
	})
}

// TestGuardTTL: a ttl that isn't positive is an error, and f doesn't run.
func TestGuardTTL(t *testing.T) {
	for _, ttl := range []time.Duration{0, -1} {
		ran, err := locking.Guard(t.Context(), newBackend(), locking.RequireGlobal, "k", ttl, runs(0))
		if ran || err == nil {
			t.Errorf("ttl %v: %v, %v", ttl, ran, err)
		}
	}
}
