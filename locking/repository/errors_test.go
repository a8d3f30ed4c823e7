package repository_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/repository"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestClasses: each error of the store is the one that package locking has for it, in one line
// that names the key. Nothing is held then.
func TestClasses(t *testing.T) {
	silence := store.Unreachable(errors.New("connection refused"))
	for name, c := range map[string]struct {
		answer func(hookstore.Request) error
		want   error // nil is none of them
	}{
		"silent":      {func(hookstore.Request) error { return silence }, locking.ErrUnreachable},
		"no host":     {func(hookstore.Request) error { return store.ErrNoHost }, nil},
		"fell silent": {func(r hookstore.Request) error { return unless(r.Op == "put", silence) }, nil},
		"permission":  {func(hookstore.Request) error { return store.ErrPermission }, locking.ErrPermission},
		"credentials": {func(hookstore.Request) error { return store.ErrCredentials }, locking.ErrPermission},
		"config":      {func(hookstore.Request) error { return store.ErrConfig }, locking.ErrUnfit},
		"no bucket":   {func(hookstore.Request) error { return store.ErrNotFound }, locking.ErrUnfit},
		"listing":     {func(r hookstore.Request) error { return unless(r.Op != "list", store.ErrListing) }, locking.ErrUnfit},
		"full":        {func(hookstore.Request) error { return store.ErrFull }, nil},
		"other":       {func(hookstore.Request) error { return errors.New("500") }, nil},
		"slow":        {func(hookstore.Request) error { time.Sleep(1200 * time.Millisecond); return nil }, locking.ErrUnfit},
	} {
		t.Run(name, func(t *testing.T) {
			// Without IfMatch a refresh takes two requests, so that a store is too slow earlier.
			on(t, mem.Options{IfMatch: mem.Lacked}, func(t *testing.T, a, b *client) {
				a.store.Before(func(_ context.Context, r hookstore.Request) error {
					if err := c.answer(r); err != nil {
						return &store.Error{Op: r.Op, Key: r.Key, Err: err}
					}
					return nil
				})
				_, ok, err := a.TryLock(t.Context(), key, ttl)
				assert.Need(t, !ok && err != nil, "acquired %v, %v", ok, err)
				for _, class := range []error{locking.ErrUnreachable, locking.ErrPermission, locking.ErrUnfit, locking.ErrLost, locking.ErrKey} {
					assert.That(t, errors.Is(err, class) == (class == c.want), "%v: is %v: %v", err, class, errors.Is(err, class))
				}
				if !strings.HasPrefix(err.Error(), `lock "nightly": `) || strings.Contains(err.Error(), "\n") {
					t.Errorf("message %q", err)
				}
				time.Sleep(ttl + 5*time.Second) // what couldn't be taken down expires
				b.free()
			})
		})
	}
}

func unless(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}

// TestInspectFails: a store that doesn't answer is no free lock.
func TestInspectFails(t *testing.T) {
	in(t, func(t *testing.T, a, b *client) {
		h := lockcheck.Acquire(t, b, key, time.Hour)
		seen := lockcheck.Seen(t, a, key)
		a.cut(errCut)
		if info, err := a.Inspect(t.Context(), key); info != nil || !errors.Is(err, locking.ErrUnreachable) {
			t.Errorf("inspect: %+v, %v", info, err)
		}
		assert.Is(t, assert.Err(a.Break(t.Context(), seen, false)), locking.ErrUnreachable, "break")
		lockcheck.Renew(t, b, h)
		lockcheck.Release(t, b, h)
	})
}

// TestOptions: options and ttls out of bounds are refused before a request is sent.
func TestOptions(t *testing.T) {
	assert.That(t, assert.Err(repository.New(nil, repository.Options{})) != nil, "no store is accepted")
	s := &hookstore.Store{Store: mem.New(mem.Options{})}
	for name, opts := range map[string]repository.Options{
		"operation": {Operation: strings.Repeat("x", 257)},
		"metadata":  {Metadata: map[string]string{"x": strings.Repeat("x", 5000)}},
		"look":      {Look: time.Millisecond},
	} {
		assert.That(t, assert.Err(repository.New(s, opts)) != nil, "%s is accepted", name)
	}
	b, err := repository.New(s, repository.Options{})
	assert.OK(t, err)
	for _, ttl := range []time.Duration{replock.MinTTL - 1, replock.MaxTTL + 1} {
		if _, ok, err := b.TryLock(t.Context(), key, ttl); ok || err == nil {
			t.Errorf("ttl %v: %v, %v", ttl, ok, err)
		}
	}
	n, _ := s.Count()
	assert.Equal(t, n, 0, "requests")
}

// TestWatched: a lock that is stale by the acquirer's clock alone is watched for its ttl by TryLock, or, if the
// context ends before, counts as held and is watched by Cleanup.
func TestWatched(t *testing.T) {
	on(t, mem.Options{NoStoreClock: true}, func(t *testing.T, a, b *client) {
		watches := func(what string, watched bool, f func()) {
			t.Helper()
			began := time.Now()
			f()
			if took := time.Since(began); (took >= ttl) != watched || took > 2*ttl {
				t.Errorf("%s took %v, want watched %v", what, took, watched)
			}
		}
		cleanup := func() {
			assert.Is(t, b.Cleanup(t.Context()), nil)
		}
		a.crashed()
		watches("acquire", true, b.free)
		a.cut(nil)
		a.crashed()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, ok, err := b.TryLock(ctx, key, ttl); ok || err != nil {
			t.Errorf("within a second: %v, %v", ok, err)
		}
		watches("cleanup", true, cleanup)
		watches("acquire after cleanup", false, b.free)
		watches("cleanup of nothing", false, cleanup)
	})
}
