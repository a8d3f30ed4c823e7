package replock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

func TestStatus(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		_, k := w.holder(t, Exclusive, func(o *Options) { o.Metadata, o.TTL = map[string]string{"job": "nightly"}, 2*time.Minute })
		time.Sleep(45 * time.Second)
		w.put("index/lock.shared/x", foreign(time.Now().Add(-70*time.Second), true))
		w.put("index/lock.shared/y", []byte("?"))
		w.put("index/lock.shared/z", nil)
		w.put("index/other", nil)
		time.Sleep(2 * time.Second)

		m := w.machine()
		m.hooks.Before(on("", "", func(r hookstore.Request) {
			assert.That(t, r.Op != "put" && r.Op != "delete", "status writes: %s %s", r.Op, r.Key)
		}))
		infos, err := m.Status(t.Context())
		if err != nil || len(infos) != 3 {
			t.Fatalf("%d locks: %v %v", len(infos), infos, err)
		}
		x := infos[0]
		assert.That(t, x.Mode == Exclusive && len(x.Keys) == 2 && x.ID == k.ID() && x.Operation == "x" && x.Holder == "m1 (pid 101)" && x.Verdict == Live && x.StoreClock && x.TTL == 2*time.Minute && x.Metadata["job"] == "nightly",
			"exclusive: %+v", x)
		assert.That(t, x.Age == 46*time.Second && x.Left == 74*time.Second, "age %v, left %v", x.Age, x.Left)
		if f := infos[1]; f.Verdict != Live { // expired by its own clock, not by the store's
			t.Errorf("foreign: %+v", f)
		}
		u := infos[2]
		assert.That(t, u.Verdict == Unreadable, "unreadable: %+v", u)
	})
}

func TestBreak(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		m := w.machine()
		breaks := func(opts BreakOptions, want int) (broken []Broken) {
			t.Helper()
			broken, err := m.Break(t.Context(), opts)
			if err != nil || len(broken) != want {
				t.Fatalf("%+v: broken: %v %v", opts, broken, err)
			}
			return broken
		}
		breaks(BreakOptions{}, 0)
		k := w.machine().takes(t, mode)
		w.put("index/lock.shared/garbage", []byte("?"))
		w.put("index/lock.shared/empty", nil)
		w.put("index/data", []byte("not a lock"))
		breaks(BreakOptions{ID: "another"}, 0)
		broken := breaks(BreakOptions{ID: k.ID()}, 1)
		assert.That(t, len(broken[0].Keys) == int(mode), "broken by id: %v", broken)
		breaks(BreakOptions{}, 2)
		w.stores("index/data")
		ends(t, k, 30*time.Second)
		cause := context.Cause(k.Context())
		assert.That(t, errors.Is(cause, ErrLost), "%v", cause)
	})
}

// TestBreakStale: break-lock --stale removes exactly the locks that are stale beyond doubt.
func TestBreakStale(t *testing.T) {
	stores.holders(t, func(t *testing.T, w *world, dead *machine, k *Lock) {
		dead.lose(t, k)
		time.Sleep(10 * time.Second)
		w.put("index/lock.shared/live", foreign(time.Now(), true))
		w.put("index/lock.shared/garbage", []byte("?"))
		broken, err := w.machine().Break(t.Context(), BreakOptions{Stale: true})
		if w.clockless { // without watching, nothing is certain there
			assert.That(t, err == nil && len(broken) == 0, "break --stale: %v %v", broken, err)
			return
		}
		assert.That(t, err == nil && len(broken) == 1 && broken[0].ID == k.ID(), "break --stale: %v %v", broken, err)
		w.stores("index/lock.shared/garbage", "index/lock.shared/live")
	})
}

// TestBreakFails: the error of a failed delete names the key, and the others are deleted.
func TestBreakFails(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		const a, b = "index/lock.shared/a", "index/lock.shared/b"
		w.put(a, []byte("?"))
		w.put(b, []byte("?"))
		m := w.machine()
		m.hooks.Before(inTurn(fails("delete", a, store.ErrPermission), fails("put", a, store.ErrPermission)))
		broken, err := m.Break(t.Context(), BreakOptions{})
		assert.That(t, errors.Is(err, store.ErrPermission) && strings.Contains(err.Error(), a) && len(broken) == 2, "%v %v", broken, err)
		w.stores(a)
	})
}

// TestProcessGone: a holder of this machine and boot whose process has ended is shown as gone, unless in doubt.
func TestProcessGone(t *testing.T) {
	for name, change := range map[string]func(*identity.Process){
		"gone":                          func(*identity.Process) {},
		"another machine":               func(p *identity.Process) { p.HostID = "a clone of it" },
		"another boot":                  func(p *identity.Process) { p.BootID = "other" },
		"another namespace":             func(p *identity.Process) { p.PIDNamespace = "other" },
		"another time namespace":        func(p *identity.Process) { p.TimeNamespace = "other" },
		"no time namespace in the body": func(p *identity.Process) { p.TimeNamespace = "" },
	} {
		sub(t, name, mem.Options{}, func(t *testing.T, w *world) {
			m := w.machine()
			self := m.self
			m.self.PID = 1 << 30
			change(&m.self)
			m.takes(t, Shared)
			m.self = self
			i := m.only(t)
			assert.That(t, i.ProcessGone == (name == "gone"), "%+v", i)
			broken, err := m.Break(t.Context(), BreakOptions{Dead: true})
			removed := len(w.keys()) == 0
			assert.That(t, err == nil && (len(broken) == 1) == removed && removed == (name == "gone"), "break --dead: %v %v", broken, err)
		})
	}
}

// breaksNone breaks the locks that are chosen, of which there are none.
func (m *machine) breaksNone(t *testing.T, opts BreakOptions) {
	t.Helper()
	broken, err := m.Break(t.Context(), opts)
	assert.That(t, err == nil && len(broken) == 0, "broken: %v %v", broken, err)
}

// TestStaleAsOfTheListing: break-lock --stale judges a lock as of when it was listed, however
// long it takes to learn the store's time after that. It might have been refreshed since.
func TestStaleAsOfTheListing(t *testing.T) {
	bubble(t, mem.Options{NoTime: true}, func(t *testing.T, w *world) {
		b := w.machine()
		k := w.machine(func(o *Options) { o.TTL = MinTTL }).takes(t, Shared)
		b.hooks.Before(slow("put", "", 7*time.Second))
		b.hooks.After(lateAnswer("list", "lock.shared", 7*time.Second)) // of the probe
		b.breaksNone(t, BreakOptions{Stale: true})
		time.Sleep(time.Minute)
		lives(t, k)
	})
}

// TestStaleIsLookedAtAgain: a lock whose holder is back before break-lock --stale deletes it isn't broken.
func TestStaleIsLookedAtAgain(t *testing.T) {
	bothModes(t, mem.Options{NoTime: true}, func(t *testing.T, w *world, mode Mode) {
		b := w.machine()
		a, k := w.holder(t, mode)
		time.Sleep(DefaultTTL/2 - 5*time.Second)
		const pause = 2 * DefaultTTL
		a.clock.pause(pause)
		time.Sleep(pause - time.Second)
		// Of the probe for the store's time.
		b.hooks.Before(inTurn(slow("put", "", 7*time.Second), slow("delete", "", 7*time.Second)))
		b.breaksNone(t, BreakOptions{Stale: true})
		time.Sleep(time.Minute)
		lives(t, k)
	})
}

// TestBreakTouchesOnlyShownLocks: Break with Shown leaves a lock alone that was not shown.
func TestBreakTouchesOnlyShownLocks(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m, k := w.machine(), w.machine().takes(t, Exclusive)
		shown := m.only(t)
		k.Release(t.Context())
		other := w.machine().takes(t, Exclusive)
		broken, err := m.Break(t.Context(), BreakOptions{Shown: []Broken{{Info: shown}}})
		assert.That(t, len(broken) == 0, "broke %v, which wasn't shown; %v", broken, err)
		w.lasts(other)
	})
}

// TestProbeIsDatedFromWhenItIsSeen: break-lock --stale dates the store's time from when it sees its
// probe, not from an answer: the probe can be stamped later.
func TestProbeIsDatedFromWhenItIsSeen(t *testing.T) {
	bubble(t, mem.Options{NoTime: true}, func(t *testing.T, w *world) {
		b := w.machine()
		b.clock.setSkew(time.Hour) // so that one witness is wrong already
		a, _ := w.holder(t, Shared)
		a.hooks.Before(outage)
		time.Sleep(54500 * time.Millisecond)
		b.hooks.Before(inTurn(w.delaysFirst(7900*time.Millisecond), slowFirst("list", "lock.shared", 7950*time.Millisecond)))
		b.breaksNone(t, BreakOptions{Stale: true, DryRun: true})
	})
}
