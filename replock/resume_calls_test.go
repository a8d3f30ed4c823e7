package replock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/mem"
)

// TestResumesAtOnceGiveOneLock: of two concurrent Resumes of one lost lock, at most one
// succeeds.
func TestResumesAtOnceGiveOneLock(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		a.lose(t, k)
		a.hooks.Before(takesASecond)
		var rs [2]*Lock
		var wg sync.WaitGroup
		for i := range rs {
			wg.Go(func() {
				rs[i], _ = k.Resume(context.Background())
			})
		}
		wg.Wait()
		if rs[0] != nil && rs[1] != nil {
			t.Errorf("one lost %s lock was resumed as two: alive %v %v", mode, alive(rs[0]), alive(rs[1]))
		}
		for _, r := range rs {
			if r != nil {
				r.Release(context.Background())
			}
		}
		k.Release(context.Background())
	})
}

// TestReleaseAfterACancelledResumeLeavesNothing: a cancelled resume and a release leave no lock behind.
func TestReleaseAfterACancelledResumeLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a, b := w.machine(), w.machine()
		k, err := a.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		a.lose(t, k)
		time.Sleep(20 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "list" && r.Key == "index/lock." {
				cancel()
			}
			return nil
		})
		if r, err := k.Resume(ctx); r != nil {
			t.Fatal(err)
		} else {
			t.Logf("resume: %v; is canceled: %v", err, errors.Is(err, context.Canceled))
		}
		if err := k.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		x, err := b.Exclusive(t.Context(), "prune")
		if err != nil {
			t.Errorf("locked out by leftovers of a cancelled resume and a release: %v: %v", w.keys(), err)
		} else {
			x.Release(t.Context())
		}
	})
}

// TestConcurrentResumesAndReleases: Resume and Release can be called from several goroutines.
func TestConcurrentResumesAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		k, err := a.Shared(t.Context(), "x")
		mustLock(t, k, err)
		a.lose(t, k)
		a.hooks.Before(nil)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if r, _ := k.Resume(context.Background()); r != nil {
					r.Release(context.Background())
				}
			})
		}
		wg.Wait()
		k.Release(context.Background())
	})
}

// TestReleaseDuringResumeLeavesNothing: a Release during a Resume locks no later acquirer out.
func TestReleaseDuringResumeLeavesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for d := time.Duration(0); d < 9*time.Second; d += 500 * time.Millisecond {
			a, b := w.machine(), w.machine()
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			a.lose(t, k)
			time.Sleep(10 * time.Second)
			a.hooks.Before(takesASecond)
			done := make(chan *Lock)
			go func() {
				r, err := k.Resume(context.Background())
				_ = err
				done <- r
			}()
			time.Sleep(d)
			rerr := k.Release(context.Background())
			r := <-done
			if r != nil {
				if !alive(r) {
					t.Errorf("%v: resumed and dead", d)
				}
				r.Release(context.Background())
			}
			a.hooks.Before(nil)
			if x, err := b.Exclusive(t.Context(), "prune"); err != nil {
				t.Errorf("%v: released (%v), resumed %v, and locked out: %v", d, rerr, r != nil, w.keys())
				time.Sleep(3 * time.Minute)
				w.machine().Break(t.Context(), BreakOptions{})
			} else {
				x.Release(t.Context())
			}
		}
	})
}
