package replock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestFenceNeedsConditions: a fence needs conditions that the store keeps, and survives a lost
// answer and a contender.
func TestFenceNeedsConditions(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		p := w.mem.Properties()
		k, err := w.machine().Exclusive(t.Context(), "x", Fence())
		if kept := p.IfAbsent == store.Kept && p.IfMatch == store.Kept; (k != nil) != kept || kept == errors.Is(err, ErrFence) {
			t.Errorf("%+v: %v", p, err)
		}
		if k != nil {
			k.Release(t.Context())
		}
	})
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		for want := uint64(1); want < 4; want++ {
			var lost, raced atomic.Bool
			a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if r.Op == "put" && strings.HasSuffix(r.Key, "lock-fence") && want == 3 && raced.CompareAndSwap(false, true) {
					w.put(r.Key, []byte(`{"fence":10,"id":"another"}`)) // a late put of an earlier holder
				}
				return nil
			})
			a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
				if r.Op == "put" && strings.HasSuffix(r.Key, "lock-fence") && lost.CompareAndSwap(false, true) && err == nil {
					return errOutage
				}
				return err
			})
			k, err := a.Exclusive(t.Context(), "x", Fence())
			mustLock(t, k, err)
			expect := want
			if want == 3 {
				expect = 11
			}
			if n, _ := k.Fence(); n != expect {
				t.Errorf("fence %d, want %d", n, expect)
			}
			k.Release(t.Context())
		}
	})
}

func TestFenceGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		for want := uint64(1); want <= 3; want++ {
			k, err := w.machine().Exclusive(t.Context(), "prune", Fence())
			mustLock(t, k, err)
			if got, ok := k.Fence(); !ok || got != want {
				t.Errorf("fence %d %v, want %d", got, ok, want)
			}
			if err := k.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		k, err := w.machine().Shared(t.Context(), "backup", Fence())
		mustLock(t, k, err)
		if _, ok := k.Fence(); ok {
			t.Error("a shared lock has a fence")
		}
		k.Release(t.Context())

		w.put("index/lock-fence", []byte("not json"))
		if k, err = w.machine().Exclusive(t.Context(), "prune", Fence()); !errors.Is(err, ErrFence) || k != nil {
			t.Errorf("with an unreadable fence: %v", err)
		}
		if keys := w.keys(); len(keys) != 1 {
			t.Errorf("left over: %v", keys)
		}
	})
}
