package lockingtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
)

// fixture is one subtest: its key, and three clients of the storage. If Config.Other is set, b is a client from it.
// thief is the client that takes expired locks: Steal's, or b.
type fixture struct {
	*testing.T
	Config
	key            string
	a, b, c, thief *client
}

func newFixture(t *testing.T, c Config) *fixture {
	t.Helper()
	f := &fixture{T: t, Config: c, key: c.Keys[0]}
	f.a, f.b, f.c = f.client(f.New), f.other(), f.client(f.New)
	f.thief = f.b
	if f.Steal != nil {
		f.thief = f.client(f.Steal)
	}
	return f
}

// client records the locks of a client, so that a failed test leaves none for the next one.
type client struct {
	locking.Backend
	mu   sync.Mutex
	held map[locking.Handle]bool
}

// other returns a client of Config.Other, or of Config.New if Other is nil.
func (f *fixture) other() *client {
	f.Helper()
	if f.Other != nil {
		return f.client(f.Other)
	}
	return f.client(f.New)
}

func (f *fixture) client(open func(*testing.T) locking.Backend) *client {
	f.Helper()
	c := &client{Backend: open(f.T), held: make(map[locking.Handle]bool)}
	f.Cleanup(func() {
		for h := range c.held {
			_ = c.Backend.Release(context.Background(), h)
		}
	})
	return c
}

func (c *client) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	h, ok, err := c.Backend.TryLock(ctx, key, ttl)
	if ok {
		c.mu.Lock()
		c.held[h] = true
		c.mu.Unlock()
	}
	return h, ok, err
}

func (c *client) Release(ctx context.Context, h locking.Handle) error {
	err := c.Backend.Release(ctx, h)
	if err == nil {
		c.mu.Lock()
		delete(c.held, h)
		c.mu.Unlock()
	}
	return err
}

// acquire acquires a lock, and ends the test if it isn't free.
func (f *fixture) acquire(c *client, key string, ttl time.Duration) locking.Handle {
	f.Helper()
	h, ok, err := c.TryLock(f.Context(), key, ttl)
	if !ok || err != nil {
		f.Fatalf("%q must be free: acquired %v, %v", key, ok, err)
	}
	return h
}

func (f *fixture) release(c *client, h locking.Handle) {
	f.Helper()
	if err := c.Release(f.Context(), h); err != nil {
		f.Fatalf("release of a held lock: %v", err)
	}
}

// refused checks that a lock is held by another holder.
func (f *fixture) refused(c *client, key string) {
	f.Helper()
	if _, ok, err := c.TryLock(f.Context(), key, long); ok || err != nil {
		f.Errorf("%q must be held: acquired %v, %v", key, ok, err)
	}
}

// isLost fails the test unless the error of a call is ErrLost.
func (f *fixture) isLost(what string, err error) {
	f.Helper()
	if !errors.Is(err, locking.ErrLost) {
		f.Errorf("%s: %v, want ErrLost", what, err)
	}
}

// returns ends the test unless a call returns within Limit.
func (f *fixture) returns(call func()) {
	f.Helper()
	done := make(chan struct{})
	go func() { defer close(done); call() }()
	select {
	case <-done:
	case <-time.After(f.Limit):
		f.Fatal("the backend doesn't return")
	}
}

// pass advances the backend's clock by d, or waits for d.
func (f *fixture) pass(d time.Duration) {
	if f.Advance != nil {
		f.Advance(d)
		return
	}
	<-time.After(d)
}

// becomesFree waits until a lock is free. The thief then acquires it. becomesFree returns the thief's lock, and when it
// was acquired.
func (f *fixture) becomesFree(key string) (h locking.Handle, at time.Time) {
	f.Helper()
	limit := time.Now().Add(f.Limit)
	if f.Advance == nil {
		limit = limit.Add(f.TTL)
	}
	for time.Now().Before(limit) {
		h, ok, err := f.thief.TryLock(f.Context(), key, long)
		if err != nil {
			f.Fatal(err)
		}
		if ok {
			return h, time.Now()
		}
		f.pass(f.TTL / 50)
		if f.Advance != nil { // a server needs real time besides
			<-time.After(time.Millisecond)
		}
	}
	f.Fatalf("%q doesn't become free", key)
	return h, at
}

// dawdle lets the other goroutines run, so that a possible race happens.
func dawdle() {
	for range 50 {
		runtime.Gosched()
	}
}

// rest is the pause of a refused client before it tries again. In a bubble it must sleep, because
// time stands still while a goroutine runs.
func (f *fixture) rest() {
	if f.Bubble {
		time.Sleep(rand.N(100 * time.Millisecond))
		return
	}
	dawdle()
}
