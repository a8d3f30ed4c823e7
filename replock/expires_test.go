package replock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/mem"
)

// expiresIn returns the time until an object expires, as clients of the original protocol read
// it.
func (w *world) expiresIn(key string) time.Duration {
	w.t.Helper()
	raw, _, err := w.mem.Get(context.Background(), key, maxBody)
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := decode(raw)
	if err != nil {
		w.t.Fatal(err)
	}
	return time.Until(l.expires)
}

// TestExpiresAheadAfterAPause: the locks of a machine with clocks that are behind, after a
// hypervisor's pause, don't look expired.
func TestExpiresAheadAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		time.Sleep(5 * time.Second)
		a.clock.pause(10 * time.Minute)
		time.Sleep(10*time.Minute + 20*time.Second)
		for range 20 {
			if left := w.expiresIn("index/lock.exclusive"); !alive(k) || left < time.Minute {
				t.Fatalf("lost %v; it expires in %v", k.Lost(), left)
			}
			time.Sleep(10 * time.Second)
		}
		k.Release(t.Context())
	})
}

// TestMisdatedLockIsRefreshedSoon: a lock that was dated by a wall clock which is behind is refreshed
// as soon as the store lets it.
func TestMisdatedLockIsRefreshedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		a.clock.setSkew(-time.Hour)
		puts := 0
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" {
				if puts++; puts == 2 || puts == 3 {
					return errOutage
				}
			}
			return nil
		})
		k, err := a.Shared(t.Context(), "x")
		mustLock(t, k, err)
		time.Sleep(4 * time.Second)
		if left := w.expiresIn(k.Key()); left < time.Minute {
			t.Errorf("it expires in %v", left)
		}
		k.Release(t.Context())
	})
}
