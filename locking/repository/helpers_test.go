package repository_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/repository"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

const (
	key = "nightly"
	ttl = 10 * time.Second
)

// bubble is the clock of a synctest bubble. Its Elapsed can jump, as over a suspend.
type bubble struct {
	start time.Time
	leap  *atomic.Int64
}

func newBubble() bubble { return bubble{time.Now(), new(atomic.Int64)} }

func (b bubble) Now() time.Time { return time.Now().Add(time.Duration(b.leap.Load())) }
func (b bubble) Elapsed() time.Duration {
	return time.Since(b.start) + time.Duration(b.leap.Load())
}
func (b bubble) After(d time.Duration) <-chan time.Time { return time.After(d) }

// client is a backend with a clock and a connection of its own.
type client struct {
	*testing.T
	*repository.Backend
	clock bubble
	store *hookstore.Store
}

func newClient(t *testing.T, s store.Store, opts repository.Options) *client {
	t.Helper()
	c := &client{T: t, clock: newBubble(), store: &hookstore.Store{Store: s}}
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

// stamped is a store whose objects have the times of the bubble in place of the disk's.
type stamped struct {
	store.Store
	mu sync.Mutex
	at map[string]time.Time
}

func stamp(s store.Store) *stamped { return &stamped{Store: s, at: make(map[string]time.Time)} }

func (s *stamped) dated(o store.Object) store.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.at[o.Key+o.ETag]; !ok {
		s.at[o.Key+o.ETag] = time.Now()
	}
	o.ModTime = s.at[o.Key+o.ETag]
	return o
}

func (s *stamped) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	o, err := s.Store.Put(ctx, key, body, opts)
	if err == nil {
		o = s.dated(o)
	}
	return o, err
}

func (s *stamped) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	body, o, err := s.Store.Get(ctx, key, limit)
	if err == nil {
		o = s.dated(o)
	}
	return body, o, err
}

func (s *stamped) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	now := time.Now()
	page, err := s.Store.List(ctx, prefix, cursor)
	for i, o := range page.Objects {
		page.Objects[i] = s.dated(o)
	}
	if !page.Now.IsZero() {
		page.Now = now
	}
	return page, err
}

func (s *stamped) DeleteIfMatch(ctx context.Context, key, etag string) error {
	return store.DeleteIfMatch(ctx, s.Store, key, etag)
}
