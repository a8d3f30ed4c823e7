// Package lockcheck has the checks of a lock that the tests of each backend need.
package lockcheck

import (
	"errors"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
)

// Acquire acquires a lock that must be free.
func Acquire(t testing.TB, b locking.Backend, key string, ttl time.Duration) locking.Handle {
	t.Helper()
	h, ok, err := b.TryLock(t.Context(), key, ttl)
	if !ok || err != nil {
		t.Fatalf("%q must be free: acquired %v, %v", key, ok, err)
	}
	return h
}

// Held checks that another holder has the lock, and that this is no error.
func Held(t testing.TB, b locking.Backend, key string) {
	t.Helper()
	if _, ok, err := b.TryLock(t.Context(), key, time.Minute); ok || err != nil {
		t.Errorf("%q must be held: acquired %v, %v", key, ok, err)
	}
}

// Release releases a lock that is held.
func Release(t testing.TB, b locking.Backend, h locking.Handle) {
	t.Helper()
	if err := b.Release(t.Context(), h); err != nil {
		t.Errorf("release: %v", err)
	}
}

// Renew renews a lock that is held.
func Renew(t testing.TB, b locking.Backend, h locking.Handle) {
	t.Helper()
	if err := b.Renew(t.Context(), h); err != nil {
		t.Errorf("renew: %v", err)
	}
}

// Lost checks the error of something that was done with a lock.
func Lost(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, locking.ErrLost) {
		t.Errorf("%s: %v, want ErrLost", what, err)
	}
}

// Seen returns what Inspect shows of a lock that is there.
func Seen(t testing.TB, b locking.Inspector, key string) *locking.Info {
	t.Helper()
	info, err := b.Inspect(t.Context(), key)
	if err != nil || info == nil {
		t.Fatalf("inspect %q: %+v, %v", key, info, err)
	}
	return info
}

// Breaks checks whether Break removes the lock that was seen.
func Breaks(t testing.TB, b locking.Breaker, seen *locking.Info, stale, want bool) {
	t.Helper()
	if ok, err := b.Break(t.Context(), seen, stale); ok != want || err != nil {
		t.Errorf("break (stale %v): %v, %v, want %v", stale, ok, err, want)
	}
}
