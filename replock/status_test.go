package replock

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
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
		infos, err := m.Status(t.Context())
		if err != nil || len(infos) != 3 {
			t.Fatalf("%d locks: %v %v", len(infos), infos, err)
		}
		m.sent(t, between{"put": {0, 0}, "delete": {0, 0}})
		x := infos[0]
		assert.That(t, x.Mode == Exclusive && len(x.Keys) == 2 && x.ID == k.ID() && x.Operation == "x" && x.Holder == "m1 (pid 101)" &&
			x.Verdict == Live && x.StoreClock && x.TTL == 2*time.Minute && x.Metadata["job"] == "nightly", "exclusive: %+v", x)
		equal(t, "age", x.Age, 46*time.Second)
		equal(t, "left", x.Left, 74*time.Second)
		equal(t, "one that has expired by its own clock, not by the store's", infos[1].Verdict, Live)
		equal(t, "one that can't be read", infos[2].Verdict, Unreadable)
	})
}

// TestStatusOfALockOnTwoPages: an exclusive lock is one lock in the status, even if its two objects are on two pages.
func TestStatusOfALockOnTwoPages(t *testing.T) {
	bubble(t, memory.Options{PageSize: 1}, func(t *testing.T, w *world) {
		w.machine().takes(t, Exclusive)
		equal(t, "keys", len(w.machine().only(t).Keys), 2)
	})
}

// bodied is a store whose pages have the body of one key.
type bodied struct {
	store.Store
	key string
}

func (b bodied) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := b.Store.List(ctx, prefix, cursor)
	body, _, _ := b.Get(ctx, b.key, 1<<20)
	page.Bodies = map[string][]byte{b.key: body}
	return page, err
}

// TestStatusReadsThePage: Status gets no body that the page has. A body that is too large or empty counts as if
// it had been read by a get.
func TestStatusReadsThePage(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		const key = "index/lock.shared/b"
		lock := foreign(time.Now(), true)
		for _, body := range [][]byte{lock, []byte("?"), nil, append(lock, make([]byte, wire.MaxBody)...)} {
			w.put("index/lock.shared/a", lock)
			w.put(key, body)
			m := w.machine()
			want, err := m.Status(t.Context())
			assert.OK(t, err)
			_, by := m.hooks.Count()
			gets := by["get"]
			m.hooks = &hookstore.Store{Store: bodied{w.mem, key}}
			m.store = store.Finite(m.hooks)
			got, err := m.Status(t.Context())
			assert.OK(t, err)
			equal(t, "locks", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
			if n := len(body); n > 0 && n <= wire.MaxBody {
				gets--
			}
			m.sent(t, between{"get": {gets, gets}})
		}
	})
}

// TestStatusGetsTogether: the gets of a status share what a backend has opened, until the status ends. The gets that
// decide about a lock share nothing.
func TestStatusGetsTogether(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.put("index/lock.shared/"+name, foreign(time.Now(), true))
		}
		m := w.machine()
		gets := map[*store.Sharing]int{}
		var mu sync.Mutex
		m.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
			mu.Lock()
			defer mu.Unlock()
			if r.Op == "get" {
				gets[store.Shares(ctx)]++
			}
			return nil
		})
		assert.OK(t, assert.Err(m.Status(t.Context())))
		equal(t, "sharings", len(gets), 1)
		for s, n := range gets {
			equal(t, "gets", n, 3)
			if s == nil || s.Keep("key", io.NopCloser(nil)) {
				t.Error("the gets share nothing, or the last one isn't known")
			}
		}
		clear(gets)
		m.refused(t, Exclusive)
		if len(gets) != 1 || gets[nil] == 0 {
			t.Errorf("the gets of an acquirer are %v", gets)
		}
	})
}

// TestLookReadsThePage: neither an acquirer nor a holder gets a body that the page has.
func TestLookReadsThePage(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		const key = "index/lock.shared/b"
		m := w.machine()
		m.hooks = &hookstore.Store{Store: bodied{w.mem, key}}
		m.store = store.Finite(m.hooks)
		m.hooks.Before(on("get", key, func(hookstore.Request) { t.Error("the body is read once more") }))
		k := m.takes(t, Exclusive)
		w.put(key, foreign(time.Now(), true))
		time.Sleep(verdict.Transient + 2*verdict.Margin)
		assert.Is(t, k.Check(t.Context()), ErrLost)
		m.refused(t, Exclusive)
	})
}

func TestBreak(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		m := w.machine()
		m.breaks(t, BreakOptions{}, 0)
		k := w.machine().takes(t, mode)
		w.put("index/lock.shared/garbage", []byte("?"))
		w.put("index/lock.shared/empty", nil)
		w.put("index/data", []byte("not a lock"))
		m.breaks(t, BreakOptions{ID: "another"}, 0)
		equal(t, "keys", len(m.breaks(t, BreakOptions{ID: k.ID()}, 1)[0].Keys), int(mode))
		m.breaks(t, BreakOptions{}, 2)
		w.stores("index/data")
		ends(t, k, 30*time.Second)
		isAll(t, context.Cause(k.Context()), ErrLost)
	})
}

// TestBreakStale: break-lock --stale removes exactly the locks that are stale beyond doubt.
func TestBreakStale(t *testing.T) {
	stores.holders(t, func(t *testing.T, w *world, dead *machine, k *Lock) {
		dead.lose(t, k)
		time.Sleep(10 * time.Second)
		w.put("index/lock.shared/live", foreign(time.Now(), true))
		w.put("index/lock.shared/garbage", []byte("?"))
		if w.clockless { // without watching, nothing is certain there
			w.machine().breaks(t, BreakOptions{Stale: true}, 0)
			return
		}
		equal(t, "broken", w.machine().breaks(t, BreakOptions{Stale: true}, 1)[0].ID, k.ID())
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
		assert.Says(t, err, store.ErrPermission, a)
		equal(t, "broken", len(broken), 2)
		w.stores(a)
	})
}

// TestProcessGone: a holder of this machine and boot whose process has ended is shown as gone, unless in doubt.
func TestProcessGone(t *testing.T) {
	eachOf(t, []string{"", "a clone of it"}, func(t *testing.T, w *world, another string) {
		m, gone := w.machine(), 1
		self := m.self
		if m.self.PID = 1 << 30; another != "" {
			m.self.HostID, gone = another, 0
		}
		m.takes(t, Shared)
		m.self = self
		equal(t, "gone", m.only(t).ProcessGone, gone == 1)
		m.breaks(t, BreakOptions{Dead: true}, gone)
		equal(t, "locks left", len(w.keys()), 1-gone)
	})
}

// TestStaleAsOfTheListing: break-lock --stale judges a lock as of when it was listed, however
// long it takes to learn the store's time after that. It might have been refreshed since.
func TestStaleAsOfTheListing(t *testing.T) {
	bubble(t, memory.Options{NoTime: true}, func(t *testing.T, w *world) {
		b := w.machine()
		k := w.machine(func(o *Options) { o.TTL = MinTTL }).takes(t, Shared)
		b.hooks.Before(slow("put", "", 7*time.Second))
		b.hooks.After(lateAnswer("list", "lock.shared", 7*time.Second)) // of the probe
		b.breaks(t, BreakOptions{Stale: true}, 0)
		time.Sleep(time.Minute)
		lives(t, k)
	})
}

// TestStaleIsLookedAtAgain: a lock whose holder is back before break-lock --stale deletes it isn't broken.
func TestStaleIsLookedAtAgain(t *testing.T) {
	bothModes(t, memory.Options{NoTime: true}, func(t *testing.T, w *world, mode Mode) {
		b := w.machine()
		a, k := w.holder(t, mode)
		time.Sleep(DefaultTTL/2 - 5*time.Second)
		const pause = 2 * DefaultTTL
		a.clock.pause(pause)
		time.Sleep(pause - time.Second)
		// Of the probe for the store's time.
		b.hooks.Before(inTurn(slow("put", "", 7*time.Second), slow("delete", "", 7*time.Second)))
		b.breaks(t, BreakOptions{Stale: true}, 0)
		time.Sleep(time.Minute)
		lives(t, k)
	})
}

// TestBreakTouchesOnlyShownLocks: Break with Only leaves a lock alone that was not shown, under whatever key it is: a later
// lock of the same holder, or another body that can't be parsed.
func TestBreakTouchesOnlyShownLocks(t *testing.T) {
	holding(t, memory.Options{}, Exclusive, func(t *testing.T, w *world, _ *machine, k *Lock) {
		m := w.machine()
		shown := m.only(t)
		k.Release(t.Context())
		other := w.machine().takes(t, Exclusive)
		m.breaks(t, BreakOptions{Only: []Broken{{Info: shown}}}, 0)
		w.lasts(other)
	})
	do(t, func(t *testing.T, w *world) {
		m := w.machine()
		later := foreign(time.Now().Add(time.Second), true)
		for _, bodies := range [][2][]byte{{foreign(time.Now(), true), later}, {[]byte("?"), []byte("!")}} {
			const key = "index/lock.shared/x"
			w.put(key, bodies[0])
			shown := m.only(t)
			w.put(key, bodies[1])
			m.breaks(t, BreakOptions{Only: []Broken{{Info: shown}}}, 0)
			w.has(key, bodies[1])
			m.breaks(t, BreakOptions{Only: []Broken{{Info: m.only(t)}}}, 1)
		}
	})
}

// TestBreakWhileResumed: a lock is broken while its holder resumes it, the requests of both taking different times. If
// Break reports that it has deleted the lock, the holder has lost it, whichever came first. Break --stale leaves a
// resumed lock alone, and reports its old flag as deleted only with an error.
func TestBreakWhileResumed(t *testing.T) {
	choices := map[string]func(t *testing.T, b *machine, k *Lock) BreakOptions{
		"all": func(*testing.T, *machine, *Lock) BreakOptions { return BreakOptions{} },
		"id":  func(_ *testing.T, _ *machine, k *Lock) BreakOptions { return BreakOptions{ID: k.ID()} },
		"shown": func(t *testing.T, b *machine, k *Lock) BreakOptions {
			return BreakOptions{ID: k.ID(), Only: []Broken{{Info: b.only(t)}}}
		},
		"stale": func(*testing.T, *machine, *Lock) BreakOptions { return BreakOptions{Stale: true} },
	}
	for name, choice := range choices {
		for head := -1500 * time.Millisecond; head <= 1500*time.Millisecond; head += rounds.Fewer(30*time.Millisecond, 90*time.Millisecond) {
			kinds{"kept": {}, "lacked": lacking}.modes(t, func(t *testing.T, w *world, mode Mode) {
				a, k := w.holder(t, mode)
				beside := w.machine(func(o *Options) { o.Name = "other" }).takes(t, mode)
				b := w.machine()
				a.lose(t, k)
				time.Sleep(10 * time.Second)
				opts := choice(t, b, k)
				a.hooks.Before(slow("", "", 130*time.Millisecond))
				b.hooks.Before(slow("", "", 170*time.Millisecond))
				resumed := make(chan error)
				time.AfterFunc(max(-head, 0), func() { resumed <- k.Resume(context.Background()) })
				time.Sleep(max(head, 0))
				broken, err := b.Break(t.Context(), opts)
				held := <-resumed == nil
				a.hooks.Before(nil)
				time.Sleep(DefaultLook)
				held = held && alive(k)
				lives(t, beside)
				if opts.Stale || name == "id" && len(broken) == 0 { // it had another id already
					assert.That(t, !held || err != nil || len(broken) == 0, "%s, head start %v: deleted %v, and the holder lives on", name, head, broken)
					return
				}
				assert.That(t, err == nil && !held, "%s, head start %v: %v, held: %t", name, head, err, held)
				if !alive(k) {
					mustNotResume(t, k)
				}
			})
		}
	}
}

// TestBreakOfAResumedLockFails: Break returns an error if it can't find out whether a holder has just resumed the lock,
// or can't remove the resumed lock.
func TestBreakOfAResumedLockFails(t *testing.T) {
	for name, hook := range map[string]func(k *Lock, old string) hookstore.Before{
		"no listing": func(*Lock, string) hookstore.Before { return fails("list", allLocks, store.ErrPermission) },
		"no read":    func(k *Lock, _ string) hookstore.Before { return fails("get", k.Key(), store.ErrPermission) },
		"vanishes":   func(k *Lock, _ string) hookstore.Before { return fails("get", k.Key(), store.ErrNotFound) },
		"no delete": func(k *Lock, _ string) hookstore.Before {
			return inTurn(fails("delete", k.Key(), store.ErrPermission), fails("put", k.Key(), store.ErrPermission))
		},
	} {
		sub(t, name, memory.Options{}, func(t *testing.T, w *world) {
			a, k := w.holder(t, Shared)
			b, old := w.machine(), k.Key()
			a.outlives(t, k)
			b.hooks.Before(first("delete", old, func(hookstore.Request) error {
				mustResume(t, k)
				b.hooks.Before(hook(k, old))
				return nil
			}))
			_, err := b.Break(t.Context(), BreakOptions{})
			assert.That(t, err != nil, "success, and the lock is held: %t", alive(k))
		})
	}
}

// TestStaleSparesAResumedLock: break-lock --stale deletes the old flag just after its holder has resumed the lock. The
// resumed lock stays, and is an error.
func TestStaleSparesAResumedLock(t *testing.T) {
	holding(t, memory.Options{}, Shared, func(t *testing.T, w *world, a *machine, k *Lock) {
		a.outlives(t, k)
		time.Sleep(10 * time.Second)
		b := w.machine()
		b.hooks.Before(first("delete", k.Key(), func(hookstore.Request) error { mustResume(t, k); return nil }))
		broken, err := b.Break(t.Context(), BreakOptions{Stale: true})
		assert.That(t, len(broken) == 1 && err != nil && strings.Contains(err.Error(), "its holder has just resumed it"), "%v: %v", broken, err)
		time.Sleep(DefaultLook)
		lives(t, k)
	})
}

// TestProbeIsDatedFromWhenItIsSeen: break-lock --stale dates the store's time from when it sees its
// probe, not from an answer: the probe can be stamped later.
func TestProbeIsDatedFromWhenItIsSeen(t *testing.T) {
	bubble(t, memory.Options{NoTime: true}, func(t *testing.T, w *world) {
		b := w.machine()
		b.clock.setSkew(time.Hour) // so that one witness is wrong already
		a, _ := w.holder(t, Shared)
		a.hooks.Before(outage)
		time.Sleep(54500 * time.Millisecond)
		b.hooks.Before(inTurn(w.delaysFirst(7900*time.Millisecond), slowFirst("list", "lock.shared", 7950*time.Millisecond)))
		b.breaks(t, BreakOptions{Stale: true, DryRun: true}, 0)
	})
}
