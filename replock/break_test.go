package replock

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/mem"
)

// TestBreakTouchesOnlyShownLocks: Break with Shown leaves a lock alone that was not shown.
func TestBreakTouchesOnlyShownLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a, b, m := w.machine(), w.machine(), w.machine()
		k, err := a.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		infos, err := m.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		k.Release(t.Context())
		other, err := b.Exclusive(t.Context(), "another prune")
		mustLock(t, other, err)
		broken, err := m.Break(t.Context(), BreakOptions{Shown: []Broken{{Info: infos[0]}}})
		if len(broken) > 0 {
			t.Errorf("broke %v, which wasn't shown; %v", broken[0].Info, err)
		}
		time.Sleep(time.Minute)
		if !alive(other) {
			t.Errorf("the other's lock is lost: %v", other.Lost())
		}
		other.Release(t.Context())
	})
}

// TestBreakStaleJudgesAsOfTheListing: break-lock --stale judges a lock as of its listing, not
// as of when the store's time is known: that can be longer than the ttl later.
func TestBreakStaleJudgesAsOfTheListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoTime: true})
		a := w.machine(func(o *Options) { o.TTL = 10 * time.Second })
		b := w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		time.Sleep(time.Second)
		var deletes atomic.Int32
		b.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
			if r.Op == "delete" && deletes.Add(1) == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		broken, err := b.Break(t.Context(), BreakOptions{Stale: true})
		if len(broken) > 0 || err != nil {
			t.Errorf("broken: %v, %v", broken, err)
		}
		if err := k.Check(t.Context()); err != nil {
			t.Error(err)
		}
		k.Release(t.Context())
	})
}

// TestProbeIsDatedFromWhenItIsSeen: break-lock --stale dates the store's time from when it sees its
// probe, not from an answer: the probe can be stamped later.
func TestProbeIsDatedFromWhenItIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoTime: true})
		a, b := w.machine(), w.machine()
		b.clock.setSkew(time.Hour) // so that one witness is wrong already
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		a.hooks.Before(outage)
		time.Sleep(46500 * time.Millisecond)
		var puts, lists atomic.Int32
		b.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" && puts.Add(1) == 1 {
				time.AfterFunc(7900*time.Millisecond, func() { w.put(r.Key, r.Body) })
				return errOutage
			}
			if r.Op == "list" && r.Key != "index/lock." && lists.Add(1) == 1 {
				time.Sleep(7950 * time.Millisecond)
			}
			return nil
		})
		broken, err := b.Break(t.Context(), BreakOptions{Stale: true, DryRun: true})
		if err != nil || !alive(k) {
			t.Fatalf("%v, alive %v", err, alive(k))
		}
		for _, x := range broken {
			t.Errorf("%v after %v", x.Verdict, x.Age)
		}
		a.hooks.Before(nil)
		k.Release(t.Context())
	})
}
