package repository_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/repository"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/mem"
)

// TestUnrenewed: a handle lasts for its ttl from each renewal, and ends then, although the process lives
// and the lock refreshes itself.
func TestUnrenewed(t *testing.T) {
	in(t, func(t *testing.T, a, b *client) {
		h := lockcheck.Acquire(t, a, key, ttl)
		for range 3 {
			time.Sleep(ttl * 9 / 10)
			lockcheck.Renew(t, a, h)
		}
		time.Sleep(ttl - time.Millisecond)
		lockcheck.Held(t, b, key)
		time.Sleep(2 * time.Millisecond)
		b.free()
		lockcheck.Lost(t, "renew", a.Renew(t.Context(), h))
		lockcheck.Lost(t, "release", a.Release(t.Context(), h))
		lockcheck.Lost(t, "resume", a.Resume(t.Context(), h))
	})
}

// TestSuspend: the time of a suspend counts. The handle is lost after it, and Resume restores it
// unless another holder has passed.
func TestSuspend(t *testing.T) {
	for _, passed := range []bool{false, true} {
		var slept atomic.Int64
		clock := func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
		on(t, mem.Options{Now: clock}, func(t *testing.T, a, b *client) {
			h := lockcheck.Acquire(t, a, key, ttl)
			time.Sleep(2700 * time.Millisecond) // after its first refresh and look, so that no request is under way
			a.cut(errCut)                       // as long as its machine sleeps
			for _, c := range []*atomic.Int64{&slept, &a.clock.Leap, &b.clock.Leap} {
				c.Store(int64(time.Hour))
			}
			if passed {
				b.free()
			}
			time.Sleep(time.Second)
			a.cut(nil)
			lockcheck.Lost(t, "renew", a.Renew(t.Context(), h))
			err := a.Resume(t.Context(), h)
			if passed {
				lockcheck.Lost(t, "resume", err)
				b.free()
				return
			}
			assert.Need(t, err == nil, "resume: %v", err)
			lockcheck.Held(t, b, key)
			time.Sleep(ttl / 2)
			lockcheck.Renew(t, a, h)
			time.Sleep(ttl - time.Millisecond)
			lockcheck.Held(t, b, key)
			time.Sleep(2 * time.Millisecond)
			b.free()
		})
	}
}

// TestLate: a handle that has expired is lost, even if its process is so late that it still has
// the lock.
func TestLate(t *testing.T) {
	for name, call := range map[string]func(*client, context.Context, locking.Handle) error{
		"renew":   func(c *client, ctx context.Context, h locking.Handle) error { return c.Renew(ctx, h) },
		"release": func(c *client, ctx context.Context, h locking.Handle) error { return c.Release(ctx, h) },
		"resume":  func(c *client, ctx context.Context, h locking.Handle) error { return c.Resume(ctx, h) },
	} {
		in(t, func(t *testing.T, a, b *client) {
			h := lockcheck.Acquire(t, a, key, ttl)
			time.Sleep(ttl * 6 / 10) // it has refreshed itself by now
			a.clock.Leap.Add(int64(ttl * 4 / 10))
			lockcheck.Lost(t, name, call(a, t.Context(), h))
			synctest.Wait()
			b.free()
		})
	}
}

// TestResumeAfterOutage: a lock that was lost by an outage, and that no other holder has had, is
// held again. Resume waits for the store, until its context ends.
func TestResumeAfterOutage(t *testing.T) {
	in(t, func(t *testing.T, a, b *client) {
		h := lockcheck.Acquire(t, a, key, ttl)
		a.cut(errCut)
		assert.Is(t, a.Renew(t.Context(), h), locking.ErrUnreachable, "renew during the outage")
		time.Sleep(5 * ttl)
		lockcheck.Lost(t, "renew", a.Renew(t.Context(), h))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.Resume(ctx, h); err == nil || errors.Is(err, locking.ErrLost) {
			t.Errorf("resume during the outage: %v", err)
		}
		time.AfterFunc(time.Minute, func() { a.cut(nil) })
		assert.OK(t, a.Resume(t.Context(), h))
		lockcheck.Held(t, b, key)
		lockcheck.Renew(t, a, h)
		lockcheck.Release(t, a, h)
		b.free()
	})
}

// TestReleasedWhileResuming: a handle that is released meanwhile isn't resumed.
func TestReleasedWhileResuming(t *testing.T) {
	in(t, func(t *testing.T, a, b *client) {
		h := lockcheck.Acquire(t, a, key, ttl)
		a.cut(errCut)
		time.Sleep(2 * ttl)
		done := make(chan error)
		go func() { done <- a.Resume(t.Context(), h) }()
		time.Sleep(time.Minute)
		lockcheck.Lost(t, "release", a.Release(t.Context(), h))
		a.cut(nil)
		lockcheck.Lost(t, "resume", <-done)
		b.free()
	})
}

// TestNotReleased: a release that fails says so and is no loss. The lock is free after its ttl.
func TestNotReleased(t *testing.T) {
	in(t, func(t *testing.T, a, b *client) {
		h := lockcheck.Acquire(t, a, key, ttl)
		a.cut(errCut)
		began := time.Now()
		if err := a.Release(t.Context(), h); !errors.Is(err, locking.ErrUnreachable) || errors.Is(err, locking.ErrLost) {
			t.Errorf("release: %v", err)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the release took %v", took)
		}
		lockcheck.Lost(t, "second release", a.Release(t.Context(), h))
		a.cut(nil)
		time.Sleep(ttl + 5*time.Second)
		b.free()
	})
}

// TestReplock: package replock's own named lock is the same lock.
func TestReplock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New(mem.Options{})
		b := newClient(t, s, repository.Options{Operation: "report"})
		locker, err := replock.New(s, replock.Options{Name: key, Clock: b.clock})
		assert.OK(t, err)
		h := lockcheck.Acquire(t, b, key, ttl)
		_, err = locker.Exclusive(t.Context(), "prune")
		held, ok := errors.AsType[*replock.HeldError](err)
		assert.That(t, ok && held.Holders[0].Operation == "report", "replock isn't refused: %v", held)
		lockcheck.Release(t, b, h)
		for _, acquire := range []func(context.Context, string, ...replock.AcquireOption) (*replock.Lock, error){locker.Exclusive, locker.Shared} {
			lock, err := acquire(t.Context(), "prune")
			assert.OK(t, err)
			lockcheck.Held(t, b, key)
			assert.Equal(t, lockcheck.Seen(t, b, key).Holder, "prune")
			assert.OK(t, lock.Release(t.Context()))
		}
		b.free()
	})
}
