package replock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/store/mem"
)

func TestModes(t *testing.T) {
	for _, c := range []struct {
		first, second Mode
		together      bool
	}{
		{Shared, Shared, true},
		{Shared, Exclusive, false},
		{Exclusive, Shared, false},
		{Exclusive, Exclusive, false},
	} {
		t.Run(c.first.String()+" then "+c.second.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				ctx := t.Context()
				a, b := w.machine(), w.machine()
				first, err := a.acquire(ctx, c.first, "one")
				mustLock(t, first, err)
				second, err := b.acquire(ctx, c.second, "two")
				if c.together {
					mustLock(t, second, err)
				} else {
					held := mustHeld(t, second, err)
					if len(held.Holders) != 1 || held.Holders[0].Operation != "one" || !strings.Contains(err.Error(), "m1 (pid 101)") {
						t.Errorf("the error doesn't name the holder: %v", err)
					}
					if !errors.Is(err, ErrHeld) || errors.Is(err, ErrLost) {
						t.Errorf("errors.Is: %v", err)
					}
				}
				if err := first.Release(ctx); err != nil {
					t.Fatal(err)
				}
				if second == nil {
					second, err = b.acquire(ctx, c.second, "two")
					mustLock(t, second, err)
				}
				if err := second.Release(ctx); err != nil {
					t.Fatal(err)
				}
				w.empty()
			})
		})
	}
}

func TestReleaseTwiceAndAfterContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		k, err := w.machine().Exclusive(ctx, "prune", Parent(ctx))
		mustLock(t, k, err)
		cancel()
		synctest.Wait()
		if alive(k) {
			t.Error("the lock's context isn't derived from its parent")
		}
		time.Sleep(5 * time.Minute)
		if k.Lost() != nil {
			t.Errorf("lost although it is refreshed until release: %v", k.Lost())
		}
		for range 2 {
			if err := k.Release(ctx); err != nil {
				t.Errorf("release: %v", err)
			}
		}
		w.empty()
		if err := k.Check(t.Context()); !errors.Is(err, ErrReleased) {
			t.Errorf("check after release: %v", err)
		}
	})
}

func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		for _, name := range []string{"", "a", "b"} {
			k, err := w.machine(func(o *Options) { o.Name = name }).Exclusive(t.Context(), "prune")
			mustLock(t, k, err)
			defer k.Release(t.Context())
		}
		k, err := w.machine(func(o *Options) { o.Name = "a" }).Shared(t.Context(), "backup")
		mustHeld(t, k, err)
	})
}

func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		fenced := func(o *Options) { o.Fence = true }
		for want := uint64(1); want <= 3; want++ {
			k, err := w.machine(fenced).Exclusive(t.Context(), "prune")
			mustLock(t, k, err)
			if got, ok := k.Fence(); !ok || got != want {
				t.Errorf("fence %d %v, want %d", got, ok, want)
			}
			if err := k.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		k, err := w.machine(fenced).Shared(t.Context(), "backup")
		mustLock(t, k, err)
		if _, ok := k.Fence(); ok {
			t.Error("a shared lock has a fence")
		}
		k.Release(t.Context())

		w.put("index/lock-fence", []byte("not json"))
		if k, err = w.machine(fenced).Exclusive(t.Context(), "prune"); !errors.Is(err, ErrFence) || k != nil {
			t.Errorf("with an unreadable fence: %v", err)
		}
		if keys := w.keys(); len(keys) != 1 {
			t.Errorf("left over: %v", keys)
		}
	})
}
