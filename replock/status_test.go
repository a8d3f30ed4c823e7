package replock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

func TestStatus(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine(func(o *Options) { o.Metadata = map[string]string{"job": "nightly"}; o.TTL = 2 * time.Minute })
		k := a.takes(t, Exclusive)
		time.Sleep(45 * time.Second)
		w.put("index/lock.shared/x", foreign(time.Now().Add(-70*time.Second), true))
		w.put("index/lock.shared/y", []byte("?"))
		w.put("index/lock.shared/z", nil)
		w.put("index/other", nil)
		time.Sleep(2 * time.Second)

		m := w.machine()
		m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" || r.Op == "delete" {
				t.Errorf("status writes: %s %s", r.Op, r.Key)
			}
			return nil
		})
		infos, err := m.Status(t.Context())
		if err != nil || len(infos) != 3 {
			t.Fatalf("%d locks: %v %v", len(infos), infos, err)
		}
		x := infos[0]
		if x.Mode != Exclusive || len(x.Keys) != 2 || x.ID != k.ID() || x.Operation != "x" || x.Holder != "m1 (pid 101)" ||
			x.Verdict != Live || !x.StoreClock || x.TTL != 2*time.Minute || x.Metadata["job"] != "nightly" {
			t.Errorf("exclusive: %+v", x)
		}
		if x.Age != 47*time.Second || x.Left != 73*time.Second {
			t.Errorf("age %v, left %v", x.Age, x.Left)
		}
		if f := infos[1]; f.Verdict != Live { // expired by its own clock, not by the store's
			t.Errorf("foreign: %+v", f)
		}
		if u := infos[2]; u.Verdict != Unreadable {
			t.Errorf("unreadable: %+v", u)
		}
	})
}

func TestBreak(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		m := w.machine()
		if broken, err := m.Break(t.Context(), BreakOptions{}); err != nil || len(broken) > 0 {
			t.Fatalf("nothing to break: %v %v", broken, err)
		}
		a := w.machine()
		k := a.takes(t, mode)
		w.put("index/lock.shared/garbage", []byte("?"))
		w.put("index/lock.shared/empty", nil)
		w.put("index/data", []byte("not a lock"))
		if broken, err := m.Break(t.Context(), BreakOptions{ID: "another"}); err != nil || len(broken) > 0 {
			t.Errorf("break by another id: %v %v", broken, err)
		}
		if broken, err := m.Break(t.Context(), BreakOptions{ID: k.ID()}); err != nil || len(broken) != 1 || len(broken[0].Keys) != int(mode) {
			t.Errorf("break by id: %v %v", broken, err)
		}
		if broken, err := m.Break(t.Context(), BreakOptions{}); err != nil || len(broken) != 2 {
			t.Errorf("break the rest: %v %v", broken, err)
		}
		if keys := w.keys(); len(keys) != 1 || keys[0] != "index/data" {
			t.Errorf("left: %v", keys)
		}
		start := time.Now()
		<-k.Context().Done()
		if time.Since(start) > 30*time.Second || !errors.Is(context.Cause(k.Context()), ErrLost) {
			t.Errorf("the holder stopped after %v: %v", time.Since(start), context.Cause(k.Context()))
		}
	})
}

// TestBreakStale: break-lock --stale removes exactly the locks that are stale beyond doubt.
func TestBreakStale(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		dead, live := w.machine(), w.machine(func(o *Options) { o.TTL = 10 * time.Minute })
		k, err := dead.acquire(t.Context(), mode, "dead")
		mustLock(t, k, err)
		dead.lose(t, k)
		time.Sleep(10 * time.Second)
		w.put("index/lock.shared/live", func() []byte { b := foreign(time.Now(), true); return b }())
		w.put("index/lock.shared/garbage", []byte("?"))
		m := w.machine()
		broken, err := m.Break(t.Context(), BreakOptions{Stale: true})
		if w.clockless {
			// Without watching, nothing is certain there.
			if err != nil || len(broken) > 0 {
				t.Errorf("break --stale: %v %v", broken, err)
			}
			k.Release(t.Context())
			return
		}
		if err != nil || len(broken) != 1 || broken[0].ID != k.ID() {
			t.Errorf("break --stale: %v %v", broken, err)
		}
		if keys := w.keys(); strings.Join(keys, " ") != "index/lock.shared/garbage index/lock.shared/live" {
			t.Errorf("left: %v", keys)
		}
		_ = live
		k.Release(t.Context())
	})
}

// TestBreakFails: the error of a failed delete names the key, and the others are deleted.
func TestBreakFails(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.put("index/lock.shared/a", []byte("?"))
		w.put("index/lock.shared/b", []byte("?"))
		m := w.machine()
		m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if (r.Op == "delete" || r.Op == "put") && r.Key == "index/lock.shared/a" {
				return store.ErrPermission
			}
			return nil
		})
		broken, err := m.Break(t.Context(), BreakOptions{})
		if !errors.Is(err, store.ErrPermission) || !strings.Contains(err.Error(), "index/lock.shared/a") || len(broken) != 2 {
			t.Errorf("%v %v", broken, err)
		}
		if keys := w.keys(); len(keys) != 1 {
			t.Errorf("left: %v", keys)
		}
	})
}

// TestProcessGone: a holder of this machine and boot whose process has ended is shown as such,
// and in any doubt it isn't.
func TestProcessGone(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m := w.machine()
		self := m.self
		for _, c := range []struct {
			name   string
			change func()
			gone   bool
		}{
			{"no such pid", func() { m.self.PID = 1 << 30 }, true},
			{"another boot", func() { m.self.PID = 1 << 30; m.self.BootID = "other" }, false},
			{"another namespace", func() { m.self.PID = 1 << 30; m.self.PIDNamespace = "other" }, false},
			{"another time namespace", func() { m.self.PID = 1 << 30; m.self.TimeNamespace = "other" }, false},
			{"no time namespace in the body", func() { m.self.PID = 1 << 30; m.self.TimeNamespace = "" }, false},
		} {
			m.self = self
			c.change()
			k := m.takes(t, Shared)
			m.self = self
			infos, err := m.Status(t.Context())
			if err != nil || len(infos) != 1 || infos[0].ProcessGone != c.gone {
				t.Errorf("%s: %+v %v", c.name, infos, err)
			}
			broken, err := m.Break(t.Context(), BreakOptions{Dead: true})
			if removed := len(w.keys()) == 0; err != nil || len(broken) == 1 != c.gone || removed != c.gone {
				t.Errorf("%s: break --dead: %v %v", c.name, broken, err)
			}
			k.Release(t.Context())
		}
	})
}

// TestStaleAsOfTheListing: break-lock --stale judges a lock as of when it was listed, however
// long it takes to learn the store's time after that. It might have been refreshed since.
func TestStaleAsOfTheListing(t *testing.T) {
	bubble(t, mem.Options{NoTime: true}, func(t *testing.T, w *world) {
		a, b := w.machine(func(o *Options) { o.TTL = MinTTL }), w.machine()
		k := a.takes(t, Shared)
		b.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" {
				time.Sleep(7 * time.Second)
			}
			return nil
		})
		b.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "list" && r.Key != "index/lock." {
				time.Sleep(7 * time.Second)
			}
			return err
		})
		broken, err := b.Break(t.Context(), BreakOptions{Stale: true})
		if err != nil || len(broken) > 0 {
			t.Errorf("broken: %v %v", broken, err)
		}
		time.Sleep(time.Minute)
		if !alive(k) {
			t.Errorf("lost: %v", k.Lost())
		}
	})
}

// TestStaleIsLookedAtAgain: a lock whose holder comes back between the look of
// break-lock --stale and its delete isn't broken.
func TestStaleIsLookedAtAgain(t *testing.T) {
	bothModes(t, mem.Options{NoTime: true}, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k := a.takes(t, mode)
		time.Sleep(DefaultTTL/2 - 5*time.Second)
		const pause = 2 * DefaultTTL
		a.clock.pause(pause)
		time.Sleep(pause - time.Second)
		b.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" || r.Op == "delete" { // of the probe for the store's time
				time.Sleep(7 * time.Second)
			}
			return nil
		})
		broken, err := b.Break(t.Context(), BreakOptions{Stale: true})
		if err != nil || len(broken) > 0 {
			t.Errorf("broken: %v %v", broken, err)
		}
		time.Sleep(time.Minute)
		if !alive(k) {
			t.Errorf("lost: %v", k.Lost())
		}
	})
}

// TestStatusReadsAllPages: Status reads every page of a listing.
func TestStatusReadsAllPages(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.flags(2500)
		if infos, err := w.machine().Status(t.Context()); err != nil || len(infos) != 2500 {
			t.Errorf("%d of 2500: %v", len(infos), err)
		}
		if broken, err := w.machine().Break(t.Context(), BreakOptions{}); err != nil || len(broken) != 2500 || len(w.keys()) > 0 {
			t.Errorf("broke %d, left %d: %v", len(broken), len(w.keys()), err)
		}
	})
}

// TestBreakTouchesOnlyShownLocks: Break with Shown leaves a lock alone that was not shown.
func TestBreakTouchesOnlyShownLocks(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a, b, m := w.machine(), w.machine(), w.machine()
		k := a.takes(t, Exclusive)
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

// TestProbeIsDatedFromWhenItIsSeen: break-lock --stale dates the store's time from when it sees its
// probe, not from an answer: the probe can be stamped later.
func TestProbeIsDatedFromWhenItIsSeen(t *testing.T) {
	bubble(t, mem.Options{NoTime: true}, func(t *testing.T, w *world) {
		a, b := w.machine(), w.machine()
		b.clock.setSkew(time.Hour) // so that one witness is wrong already
		a.takes(t, Shared)
		a.hooks.Before(outage)
		time.Sleep(54500 * time.Millisecond)
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
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range broken {
			t.Errorf("%v after %v", x.Verdict, x.Age)
		}
	})
}
