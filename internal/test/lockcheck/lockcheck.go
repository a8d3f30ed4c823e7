// Package lockcheck has the checks of a lock that the tests of each backend need.
package lockcheck

import (
	"context"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/locking"
)

// Acquire acquires a lock that must be free.
func Acquire(t testing.TB, b locking.Backend, key string, ttl time.Duration) locking.Handle {
	t.Helper()
	h, ok, err := b.TryLock(t.Context(), key, ttl)
	assert.Need(t, ok && err == nil, "%q must be free: acquired %v, %v", key, ok, err)
	return h
}

// Held checks that another holder has the lock, and that this is no error.
func Held(t testing.TB, b locking.Backend, key string) {
	t.Helper()
	_, ok, err := b.TryLock(t.Context(), key, time.Minute)
	assert.That(t, !ok && err == nil, "%q must be held: acquired %v, %v", key, ok, err)
}

// Fails checks that an attempt to acquire a lock is an error, and returns that.
func Fails(ctx context.Context, t testing.TB, b locking.Backend, key string) error {
	t.Helper()
	_, ok, err := b.TryLock(ctx, key, time.Minute)
	assert.Need(t, !ok && err != nil, "acquiring %q must fail: acquired %v, %v", key, ok, err)
	return err
}

// Free checks that Inspect shows no lock.
func Free(t testing.TB, b locking.Inspector, key string) {
	t.Helper()
	info, err := b.Inspect(t.Context(), key)
	assert.That(t, info == nil && err == nil, "inspect %q, which is free: %+v, %v", key, info, err)
}

// Release releases a lock that is held.
func Release(t testing.TB, b locking.Backend, h locking.Handle) {
	t.Helper()
	assert.Is(t, b.Release(t.Context(), h), nil, "release")
}

// Renew renews a lock that is held.
func Renew(t testing.TB, b locking.Backend, h locking.Handle) {
	t.Helper()
	assert.Is(t, b.Renew(t.Context(), h), nil, "renew")
}

// Lost checks the error of something that was done with a lock.
func Lost(t testing.TB, what string, err error) {
	t.Helper()
	assert.Is(t, err, locking.ErrLost, what)
}

// Seen returns what Inspect shows of a lock that is there.
func Seen(t testing.TB, b locking.Inspector, key string) *locking.Info {
	t.Helper()
	info, err := b.Inspect(t.Context(), key)
	assert.Need(t, err == nil && info != nil, "inspect %q: %+v, %v", key, info, err)
	return info
}

// Breaks checks whether Break removes the lock that was seen.
func Breaks(t testing.TB, b locking.Breaker, seen *locking.Info, stale, want bool) {
	t.Helper()
	ok, err := b.Break(t.Context(), seen, stale)
	assert.That(t, ok == want && err == nil, "break (stale %v): %v, %v, want %v", stale, ok, err, want)
}
