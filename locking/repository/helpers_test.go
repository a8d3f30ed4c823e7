package repository_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/repository"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

const (
	key = "nightly"
	ttl = 10 * time.Second
)

// client is a backend with a clock and a connection of its own.
type client struct {
	*testing.T
	*repository.Backend
	clock *leapclock.Clock
	store *hookstore.Store
}

func newClient(t *testing.T, s store.Store, opts repository.Options) *client {
	t.Helper()
	c := &client{T: t, clock: leapclock.New(), store: &hookstore.Store{Store: s}}
	opts.Clock = c.clock
	b, err := repository.New(c.store, opts)
	if err != nil {
		t.Fatal(err)
	}
	c.Backend = b
	return c
}

// in runs a test in a bubble, with two clients of one store.
func in(t *testing.T, f func(t *testing.T, a, b *client)) {
	t.Helper()
	on(t, mem.Options{}, f)
}

// on is in with another store.
func on(t *testing.T, opts mem.Options, f func(t *testing.T, a, b *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := mem.New(opts)
		f(t, newClient(t, s, repository.Options{}), newClient(t, s, repository.Options{}))
	})
}

func (c *client) acquire() locking.Handle {
	c.Helper()
	h, ok, err := c.TryLock(c.T.Context(), key, ttl)
	if !ok || err != nil {
		c.Fatalf("must be free: %v, %v", ok, err)
	}
	return h
}

// free acquires the lock and releases it.
func (c *client) free() {
	c.Helper()
	c.release(c.acquire())
}

func (c *client) refused() {
	c.Helper()
	if _, ok, err := c.TryLock(c.T.Context(), key, ttl); ok || err != nil {
		c.Errorf("must be held: %v, %v", ok, err)
	}
}

func (c *client) release(h locking.Handle) {
	c.Helper()
	if err := c.Release(c.T.Context(), h); err != nil {
		c.Error(err)
	}
}

func (c *client) renew(h locking.Handle) {
	c.Helper()
	if err := c.Renew(c.T.Context(), h); err != nil {
		c.Error(err)
	}
}

func (c *client) isLost(what string, err error) {
	c.Helper()
	if !errors.Is(err, locking.ErrLost) {
		c.Errorf("%s: %v, want ErrLost", what, err)
	}
}

// cut cuts the connection to the store, or, with nil, mends it.
func (c *client) cut(err error) {
	if err == nil {
		c.store.Before(nil)
		return
	}
	c.store.Before(func(context.Context, hookstore.Request) error { return err })
}

var errCut = &store.Error{Op: "put", Err: store.Unreachable(errors.New("no route to host"))}

// see returns what Inspect shows of the lock.
func (c *client) see() *locking.Info {
	c.Helper()
	info, err := c.Inspect(c.T.Context(), key)
	if err != nil || info == nil {
		c.Fatalf("inspect: %+v, %v", info, err)
	}
	return info
}

// breaks checks whether Break removes a lock.
func (c *client) breaks(seen *locking.Info, stale, want bool) {
	c.Helper()
	if ok, err := c.Break(c.T.Context(), seen, stale); ok != want || err != nil {
		c.Errorf("break (stale %v): %v, %v, want %v", stale, ok, err, want)
	}
}

// crashed acquires the lock, and leaves it in the store.
func (c *client) crashed() {
	c.Helper()
	h := c.acquire()
	c.cut(errCut)
	time.Sleep(2 * ttl)
	_ = c.Release(c.T.Context(), h)
}
