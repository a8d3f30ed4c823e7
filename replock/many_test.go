package replock

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
	"github.com/repolock/repolock/store/memory"
)

// TestManyLargeLocks: Status and Break read every page, and keep little of a lock, however large its body is.
func TestManyLargeLocks(t *testing.T) {
	const n = 200
	w := &world{t: t, mem: memory.New(memory.Options{PageSize: 30})}
	long := strings.Repeat("x", 60_000)
	for i := range n {
		b := wire.Body{ExpiresAt: "2026-01-01T00:00:00Z", IsShared: true, ID: fmt.Sprint(i)}
		raw := []byte(`{"is_shared":` + strings.Repeat("1", len(long)) + "}")
		switch i % 4 {
		case 0:
			b.Operation = long
		case 1:
			b.Holder = long
		case 2:
			b.Metadata = map[string]string{"k": long}
		}
		if i%4 < 3 {
			raw = b.Encode()
		}
		w.put(fmt.Sprintf("index/lock.shared/%04d", i), raw)
	}
	l, err := New(w.mem, Options{})
	assert.OK(t, err)
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	infos, err := l.Status(t.Context())
	assert.OK(t, err)
	broken, err := l.Break(t.Context(), BreakOptions{DryRun: true})
	assert.OK(t, err)
	if kept := heap() - before; len(infos) != n || len(broken) != n || kept > 2*(verdict.MaxBodies+n*4<<10) {
		t.Errorf("%d and %d locks: %d KiB are kept", len(infos), len(broken), kept>>10)
	}
	runtime.KeepAlive(infos)
	runtime.KeepAlive(broken)
	_, err = l.Break(t.Context(), BreakOptions{})
	assert.OK(t, err)
	w.empty()
}

// TestStatusAsOfEachPage: a lock is judged as of the send of its listing, however long the answer and the
// following pages take, since it isn't watched meanwhile.
func TestStatusAsOfEachPage(t *testing.T) {
	bubble(t, memory.Options{PageSize: 1}, func(t *testing.T, w *world) {
		k := w.machine(func(o *Options) { o.TTL = MinTTL }).takes(t, Shared)
		time.Sleep(4900 * time.Millisecond) // just before it is refreshed
		for i := range 4 {
			w.put(fmt.Sprint("index/lock.shared/z", i), foreign(time.Now(), true))
		}
		m := w.machine()
		const late = 7800 * time.Millisecond
		m.hooks.After(firstAnswered("list", "", func(hookstore.Request) {
			time.Sleep(late)
			m.hooks.Before(slow("", "", late))
		}))
		infos, err := m.Status(t.Context())
		assert.That(t, err == nil && len(infos) == 5 && infos[0].ID == k.ID() && infos[0].Verdict == Live, "%v %v", infos, err)
	})
}

// TestLiveAmongManyStale: a live lock among thousands of stale ones keeps an acquirer out, which removes none. HeldError.More
// doesn't count them.
func TestLiveAmongManyStale(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		w.flags(2000)
		_, live := w.holder(t, Shared, func(o *Options) { o.TTL, o.Look = MaxTTL, MaxTTL })
		time.Sleep(time.Hour)
		before := len(w.keys())
		held := w.machine().refused(t, Exclusive)
		assert.That(t, len(held.Holders) == 1 && held.Holders[0].ID == live.ID(), "held by %v", held.Holders)
		w.machine().takes(t, Shared)
		time.Sleep(5 * time.Second)
		held = w.machine().refused(t, Exclusive)
		assert.That(t, held.More == 0, "stale locks count as holders: %v", held)
		after := len(w.keys()) - 1
		assert.That(t, after == before && alive(live), "%d locks before, %d after; %v", before, after, context.Cause(live.Context()))
	})
}

// TestFailingStoreEndsManyRequests: when a store fails, an acquirer that reads or removes thousands
// of locks sends no more requests than those that are under way, with their repetitions. None of
// the locks counts as read: when the store is back the next look reads them.
func TestFailingStoreEndsManyRequests(t *testing.T) {
	eachOf(t, []string{"get", "delete"}, func(t *testing.T, w *world, op string) {
		w.flags(1500)
		time.Sleep(2 * DefaultTTL)
		m := w.machine()
		m.hooks.Before(fails(op, "lock.shared/", errOutage))
		own, known := m.try(Exclusive), verdict.Memory{}
		if op == "get" {
			_, err := m.look(t.Context(), own, known)
			isAll(t, err, errOutage)
		} else {
			m.fails(t, Exclusive, errOutage)
		}
		m.sent(t, between{op: {1, 16 * atOnce}})
		m.hooks.Before(nil)
		f, err := m.look(t.Context(), own, known)
		assert.OK(t, err)
		assert.That(t, op == "delete" || len(f.Stale) == 1500, "%d are stale", len(f.Stale))
		w.leavesNothing(m.takes(t, Exclusive))
	})
}

// TestProgress: an acquirer that reads and removes many stale locks reports its progress, and each removed lock.
func TestProgress(t *testing.T) {
	for _, n := range []int{manyLocks - 2, 2500} {
		kinds{"": {}, "no batch": {NoBatch: true}, "a look before the first put": {PutCreates: true}}.each(t, func(t *testing.T, w *world) { progresses(t, w, n) })
	}
}

func progresses(t *testing.T, w *world, n int) {
	w.flags(n)
	time.Sleep(2 * DefaultTTL)
	m := w.machine(func(o *Options) { o.TTL = MaxTTL })
	m.hooks.Before(slow("", "", 100*time.Millisecond))
	mustRelease(t, m.takes(t, Exclusive, WithWait(time.Hour)))

	var kinds []EventKind
	reaped, last := 0, map[EventKind]Event{}
	for _, e := range m.seen() {
		was, again := last[e.Kind]
		if !again {
			kinds = append(kinds, e.Kind)
		}
		last[e.Kind] = e
		reaped += len(e.Holders)
		if e.Kind != EventReading && e.Kind != EventReaping {
			continue
		}
		switch end := e.Kind == EventReaping && e.Done == n; {
		case !again && e.Done != 0:
			t.Errorf("%s begins with %d", e.Kind, e.Done)
		case again && (e.Done <= was.Done || !end && e.Time.Sub(was.Time) < progressPause):
			t.Errorf("%s: %d at %v, after %d at %v", e.Kind, e.Done, e.Time, was.Done, was.Time)
		case e.Kind == EventReaping && e.Total != n, e.Kind == EventReading && e.Total != 0:
			t.Errorf("%s: %d in all", e.Kind, e.Total)
		}
	}
	assert.That(t, reaped == n, "%d of %d are reported as removed", reaped, n)
	want := []EventKind{EventReading, EventReaping, EventReaped, EventAcquired, EventReleased}
	if n < manyLocks {
		want = want[2:]
	} else if last[EventReaping].Done != n || last[EventReading].Done < n*9/10 || last[EventReading].Done > n {
		t.Errorf("%d were read, and %d of %d removed", last[EventReading].Done, last[EventReaping].Done, n)
	}
	assert.That(t, slices.Equal(kinds, want), "%d locks: events %v, want %v", n, kinds, want)
}

// TestOddObjects: an object in the place of a lock, or of the locks' folder, is an unreadable lock until break-lock.
func TestOddObjects(t *testing.T) {
	for _, key := range []string{"index/lock.shared", "index/lock.intent", "index/lock.exclusive/x", "index/lock.exclusive/x/y"} {
		stores.modes(t, func(t *testing.T, w *world, mode Mode) {
			w.put(key, []byte("anything"))
			w.put("index/lock.exclusive.bak", []byte("not a lock"))
			w.machine().isOdd(t, mode, key)
			w.stores("index/lock.exclusive.bak")
		})
	}
}

// isOdd checks that one unreadable lock keeps acquirers out, and then breaks it.
func (m *machine) isOdd(t *testing.T, mode Mode, key string) {
	t.Helper()
	i := m.only(t)
	assert.That(t, i.Verdict == Unreadable && i.Key() == key, "%s: status: %+v", key, i)
	held := m.refused(t, mode)
	assert.That(t, len(held.Holders) == 1 && held.Holders[0].Verdict == Unreadable, "%s: held by %+v", key, held.Holders)
	equal(t, key+": release failed", m.saw(EventReleaseFailed), 0)
	m.breaks(t, BreakOptions{}, 1)
	m.takes(t, mode).Release(t.Context())
}

// breaks breaks the chosen locks, of which there are n.
func (m *machine) breaks(t *testing.T, opts BreakOptions, n int) []Broken {
	t.Helper()
	broken, err := m.Break(t.Context(), opts)
	assert.That(t, err == nil && len(broken) == n, "%+v: broken: %v %v", opts, broken, err)
	return broken
}

// TestOddFolders: so is an empty folder in the place of lock.exclusive. The folders of the flags can be empty.
func TestOddFolders(t *testing.T) {
	for _, odd := range []string{"lock.exclusive", "lock.exclusive/x"} {
		root := t.TempDir()
		for _, name := range []string{"lock.bak", odd, "lock.intent", "lock.shared/laptop"} {
			assert.OK(t, os.MkdirAll(filepath.Join(root, "index", name), 0o700))
		}
		s, err := dir.Open(t.Context(), root)
		assert.OK(t, err)
		l, err := New(s, Options{})
		assert.OK(t, err)
		m := &machine{Locker: l, hooks: &hookstore.Store{Store: s}}
		for _, mode := range []Mode{Shared, Exclusive} {
			m.isOdd(t, mode, "index/"+odd+"/")
			assert.OK(t, os.MkdirAll(filepath.Join(root, "index", odd), 0o700))
		}
	}
}

// TestTempsOfOthersStay: an empty file that another program is about to rename isn't swept before it is a day old.
func TestTempsOfOthersStay(t *testing.T) {
	stores.each(t, func(t *testing.T, w *world) {
		m := w.machine()
		prune := func(left ...string) {
			t.Helper()
			m.takes(t, Exclusive).Release(t.Context())
			w.stores(left...)
		}
		w.put("index/lock.shared/emptied", nil)
		w.put("index/lock.shared/x.tmp", nil)
		w.put(pointer, nil)
		prune("index/lock.shared/x.tmp")
		time.Sleep(23 * time.Hour)
		m.breaks(t, BreakOptions{Stale: true}, 0)
		prune("index/lock.shared/x.tmp")
		time.Sleep(2 * time.Hour)
		prune()
	})
}

// TestKeysOfSharedLocksAreNoOtherLocks: a key that a policy for shared locks lets its owner write, also below
// the other keys of a name, is a shared lock or nothing. It is never an intent, which would keep backups out, too.
func TestKeysOfSharedLocksAreNoOtherLocks(t *testing.T) {
	for name, keys := range map[string][]string{
		"":  {"index/lock.intent/lock.shared/x", "index/lock.intent/a/lock.shared/x"},
		"n": {"index/locks/n/lock.exclusive/lock.shared/x", "index/locks/n/lock.intent/lock.shared/x"},
	} {
		bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
			for _, key := range keys {
				w.put(key, foreign(time.Now(), false))
			}
			m := w.machine(func(o *Options) { o.Name = name })
			m.takes(t, mode).Release(t.Context())
			w.put(m.opts.Prefix+"lock.shared/a/b", foreign(time.Now(), true)) // another client's name, perhaps
			m.refused(t, Exclusive)
		})
	}
}

// TestLeftProbeIsRemoved: the next exclusive acquirer removes the probe of a break-lock --stale that was killed.
func TestLeftProbeIsRemoved(t *testing.T) {
	holding(t, memory.Options{NoTime: true}, Shared, func(t *testing.T, w *world, _ *machine, k *Lock) {
		b := w.machine()
		b.hooks.Before(fails("delete", "", errOutage))
		isAll(t, assert.Err(b.Break(t.Context(), BreakOptions{Stale: true})), errOutage)
		k.Release(t.Context())
		w.leavesNothing(w.machine().takes(t, Exclusive))
	})
}

// TestSweepIsBounded: deleting emptied flags takes less than the lease, and few requests if deletes are denied.
func TestSweepIsBounded(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a, b := w.machine(), w.machine()
		w.emptied(300)
		a.hooks.Before(mayNotDelete)
		k := a.takes(t, Exclusive)
		a.sentJust(t, map[string]int{"put": 2, "list": 1, "delete": 1})
		k.Release(t.Context())

		b.hooks.Before(hangs("delete", ""))
		start := time.Now()
		b.takes(t, Exclusive)
		took(t, start, 0, hastyTime)
	})
}

// TestManyEmptiedFlags: thousands of emptied flags go in a few requests, or, one by one, within bounds.
func TestManyEmptiedFlags(t *testing.T) {
	for noBatch, want := range map[bool]map[string]int{
		false: {"put": 2, "list": 4, "delete": 1, "delete all": 3},
		true:  {"put": 2, "list": 4, "delete": 1 + maxSwept, "delete all": 1},
	} {
		bubble(t, memory.Options{NoBatch: noBatch}, func(t *testing.T, w *world) {
			w.emptied(3001)
			m, k := w.holder(t, Exclusive)
			m.sentJust(t, want)
			k.Release(t.Context())
			equal(t, "some are left", len(w.keys()) > 0, noBatch)
		})
	}
}

// TestListingsEnd: every reader of a listing without an end ends, with an error and no result.
func TestListingsEnd(t *testing.T) {
	for _, how := range hookstore.Ways {
		for name, do := range map[string]func(context.Context, *Locker) error{
			"exclusive": func(ctx context.Context, l *Locker) error { return l.Do(ctx, Exclusive, "x", nil, WithWait(0)) },
			"waiting": func(ctx context.Context, l *Locker) error {
				return l.Do(ctx, Exclusive, "x", nil, WithWait(time.Minute))
			},
			"status": func(ctx context.Context, l *Locker) error { _, err := l.Status(ctx); return err },
			"break":  func(ctx context.Context, l *Locker) error { _, err := l.Break(ctx, BreakOptions{}); return err },
		} {
			sub(t, how+"/"+name, memory.Options{}, func(t *testing.T, w *world) {
				for i := range 4 { // empty flags, which block no acquirer
					w.put(fmt.Sprint("index/lock.shared/", i), nil)
				}
				s := &hookstore.Unending{Store: w.mem, How: how, Most: 5000}
				l, err := New(s, Options{Clock: &machineClock{start: time.Now()}})
				assert.OK(t, err)
				isAll(t, do(t.Context(), l), store.ErrListing)
			})
		}
	}
}
