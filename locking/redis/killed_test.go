//go:build programs

package redis_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/locking"
)

// TestServerKilled: a holder of a killed server gets an error that isn't ErrLost, and ErrLost once
// the server is back without its memory.
func TestServerKilled(t *testing.T) {
	s := redistest.New(t)
	b := client(t, s.Addr())
	h := acquire(t, b, "k", ttl)
	s.Kill()
	for _, err := range []error{b.Renew(soon(t), h), b.Release(soon(t), h)} {
		if !errors.Is(err, locking.ErrUnreachable) || errors.Is(err, locking.ErrLost) {
			t.Errorf("of a killed server: %v", err)
		}
	}
	if _, ok, err := b.TryLock(soon(t), "k", ttl); ok || !errors.Is(err, locking.ErrUnreachable) {
		t.Errorf("acquired %v, %v", ok, err)
	}
	s.Restart()
	isLost(t, b.Renew(t.Context(), h))
	isLost(t, b.Release(t.Context(), h))
	acquire(t, b, "k", ttl)
}

// TestServerKeepsLocks: with an append-only file that is written at once, a killed server has the
// lock when it is back.
func TestServerKeepsLocks(t *testing.T) {
	s := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	b, other := client(t, s.Addr()), client(t, s.Addr())
	h := acquire(t, b, "k", ttl)
	s.Restart()
	isHeld(t, other, "k")
	if err := b.Renew(t.Context(), h); err != nil {
		t.Errorf("renew: %v", err)
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Errorf("release: %v", err)
	}
}

// TestServerStopped: each method returns when its context ends, or TryLock a second later, from a
// server that accepts connections and says nothing.
func TestServerStopped(t *testing.T) {
	s := redistest.New(t)
	b := client(t, s.Addr())
	h := acquire(t, b, "k", ttl)
	s.Stop()
	const limit = time.Minute // which only a hang reaches
	var calls sync.WaitGroup
	for name, call := range map[string]func(context.Context) error{
		"TryLock": func(ctx context.Context) error { _, _, err := b.TryLock(ctx, "k", ttl); return err },
		"Renew":   func(ctx context.Context) error { return b.Renew(ctx, h) },
		"Release": func(ctx context.Context) error { return b.Release(ctx, h) },
		"Inspect": func(ctx context.Context) error { _, err := b.Inspect(ctx, "k"); return err },
		"Break": func(ctx context.Context) error {
			_, err := b.Break(ctx, &locking.Info{Key: "k", Revision: "r"}, false)
			return err
		},
		"Examine": func(ctx context.Context) error { _, err := b.Examine(ctx); return err },
	} {
		for _, bounded := range []func(*testing.T) context.Context{soon, canceledSoon} {
			ctx, begin := bounded(t), time.Now()
			calls.Go(func() {
				_, deadline := ctx.Deadline()
				err, took := call(ctx), time.Since(begin)
				if err == nil || errors.Is(err, locking.ErrLost) || errors.Is(err, locking.ErrUnreachable) != deadline ||
					took > limit {
					t.Errorf("%s: %v after %v", name, err, took)
				}
				t.Logf("%s: %v", name, took.Round(10*time.Millisecond))
			})
		}
	}
	calls.Wait()
	s.Cont()
	if err := b.Renew(t.Context(), h); err != nil && !errors.Is(err, locking.ErrLost) { // released by what was sent
		t.Error(err)
	}
}

// TestNoDeadline: even without a deadline, a stopped server doesn't block a method for ever.
func TestNoDeadline(t *testing.T) {
	s := redistest.New(t)
	b := client(t, s.Addr())
	h := acquire(t, b, "k", ttl)
	s.Stop()
	if err := b.Renew(context.Background(), h); !errors.Is(err, locking.ErrUnreachable) {
		t.Errorf("renew: %v", err)
	}
}

// TestEviction: a server that is full evicts a lock, unless its policy is noeviction. Then it has
// no more locks, and keeps those that it has.
func TestEviction(t *testing.T) {
	for policy, lost := range map[string]bool{"allkeys-random": true, "volatile-ttl": true, "noeviction": false} {
		s := redistest.New(t, "--maxmemory-policy", policy)
		b := client(t, s.Addr())
		h := acquire(t, b, "k", ttl)
		s.CLI("CONFIG", "SET", "maxmemory", "3mb")
		s.CLI("EVAL", `local v = string.rep('x', 10000)
			for i = 1, 2000 do if redis.pcall('SET', 'other:' .. i, v, 'PX', 3600000).err then break end end`, "0")
		s.CLI("CONFIG", "SET", "maxmemory", "1mb")
		s.CLI("SET", "one", "more")
		s.CLI("CONFIG", "SET", "maxmemory", "3mb")
		err := b.Renew(t.Context(), h)
		if lost != errors.Is(err, locking.ErrLost) || !lost && err != nil {
			t.Errorf("%s: renew: %v", policy, err)
		}
		if policy != "noeviction" {
			continue
		}
		s.CLI("CONFIG", "SET", "maxmemory", "1mb")
		if _, ok, err := b.TryLock(t.Context(), "l", ttl); ok || err == nil || errors.Is(err, locking.ErrUnreachable) {
			t.Errorf("of a full server: acquired %v, %v", ok, err)
		}
		if err := b.Renew(t.Context(), h); err != nil {
			t.Errorf("renew by a full server: %v", err)
		}
		if err := b.Release(t.Context(), h); err != nil {
			t.Errorf("release by a full server: %v", err)
		}
	}
}
