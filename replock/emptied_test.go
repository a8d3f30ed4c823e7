package replock

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/mem"
)

// TestEmptiedFlagsAreRemoved: the next exclusive acquirer removes the flags that a client without the
// right to delete has emptied.
func TestEmptiedFlagsAreRemoved(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		a.hooks.Before(mayNotDelete)
		for range 3 {
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err).Release(t.Context())
		}
		k, err := b.Exclusive(t.Context(), "prune")
		mustLock(t, k, err).Release(t.Context())
		w.empty()
	})
}

// TestLeftProbeIsRemoved: the probe of a break-lock --stale that was killed is an emptied flag, which
// the next exclusive acquirer removes.
func TestLeftProbeIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoTime: true})
		a, b, c := w.machine(), w.machine(), w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		b.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "delete" {
				return errOutage
			}
			return nil
		})
		if _, err := b.Break(t.Context(), BreakOptions{Stale: true}); err == nil {
			t.Error("no error")
		}
		k.Release(t.Context())
		other, err := c.Exclusive(t.Context(), "prune")
		mustLock(t, other, err).Release(t.Context())
		w.empty()
	})
}

// TestSweepIsBounded: deleting emptied flags takes less than the lease, and few requests of a client
// that must not delete.
func TestSweepIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a, b := w.machine(), w.machine()
		a.hooks.Before(mayNotDelete)
		for range 300 {
			k, err := a.Shared(t.Context(), "x")
			mustLock(t, k, err).Release(t.Context())
		}
		a.hooks.Count()
		k, err := a.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		if n, by := a.hooks.Count(); n > 4 {
			t.Errorf("a client without the right to delete sends %v", by)
		}
		k.Release(t.Context())

		b.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
			if strings.HasPrefix(r.Op, "delete") {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		start := time.Now()
		k, err = b.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		if took := time.Since(start); took > hastyTime {
			t.Errorf("deletes that hang hold it up for %v", took)
		}
		b.hooks.Before(nil)
		k.Release(t.Context())
	})
}

// TestManyEmptiedFlags: thousands of emptied flags go in a few requests, if the store can delete
// many in one, and otherwise within bounds.
func TestManyEmptiedFlags(t *testing.T) {
	const n = 3001
	for noBatch, want := range map[bool]map[string]int{
		false: {"put": 2, "list": 4, "delete": 1, "delete all": 3},
		true:  {"put": 2, "list": 4, "delete": 1 + maxSwept, "delete all": 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{NoBatch: noBatch})
			for i := range n {
				w.put(fmt.Sprintf("index/lock.shared/%04d", i), nil)
			}
			m := w.machine()
			k, err := m.Exclusive(t.Context(), "prune")
			mustLock(t, k, err)
			if _, by := m.hooks.Count(); !maps.Equal(by, want) {
				t.Errorf("requests %v, want %v", by, want)
			}
			k.Release(t.Context())
			if left := len(w.keys()); (left > 0) != noBatch {
				t.Errorf("%d are left", left)
			}
		})
	}
}
