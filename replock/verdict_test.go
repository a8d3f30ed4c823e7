package replock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// only returns the one lock in the store, as a machine sees it.
func (m *machine) only(t *testing.T) Info {
	t.Helper()
	infos, err := m.Status(t.Context())
	if err != nil || len(infos) != 1 {
		t.Fatalf("%d locks: %v %v", len(infos), infos, err)
	}
	return infos[0]
}

// TestEncryptedWithoutStoreClock: an encrypted body shows only when it changes. On a store
// without a clock of its own it is watched for a whole ttl. It is taken neither for live, as
// if it were refreshed, nor for stale.
func TestEncryptedWithoutStoreClock(t *testing.T) {
	for _, key := range []string{"index/lock.exclusive", "index/lock.intent/x", "index/lock.shared/x"} {
		bubble(t, mem.Options{NoStoreClock: true}, func(t *testing.T, w *world) {
			w.put(key, []byte("\x01 this is ciphertext"))
			m := w.machine()
			for _, age := range []time.Duration{0, 10 * time.Minute} {
				time.Sleep(age)
				if i := m.only(t); i.Verdict != Doubtful || i.Why != "its body is encrypted, and the store has no clock of its own" {
					t.Errorf("%s, %v old: %v, %q", key, age, i.Verdict, i.Why)
				}
			}
			start := time.Now()
			k, err := m.Exclusive(t.Context(), "prune")
			if err != nil {
				t.Fatalf("%s holds forever: %v", key, err)
			}
			if took := time.Since(start); took < foreignTTL || took > foreignTTL+20*time.Second {
				t.Errorf("%s is passed after %v, want %v", key, took, foreignTTL)
			}
			w.leavesNothing(k)
		})
	}
}

// TestWatchedFromTheAnswer: a lock that no clock dates is watched for its whole ttl from the answer of the
// look that showed it first: it can have been written just before that.
func TestWatchedFromTheAnswer(t *testing.T) {
	bubble(t, mem.Options{NoStoreClock: true}, func(t *testing.T, w *world) {
		const late = 7 * time.Second
		w.put("index/lock.shared/x", []byte("\x01 this is ciphertext"))
		m := w.machine()
		var lists atomic.Int32
		m.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
			if r.Op == "list" && lists.Add(1) == 1 {
				time.Sleep(late)
			}
			return err
		})
		start := time.Now()
		m.takes(t, Exclusive)
		took(t, start, late+foreignTTL, late+foreignTTL+time.Second)
	})
}

// TestChangedIsLive: a lock that was refreshed while it is watched is live, although both clocks are stepped
// since and call it stale.
func TestChangedIsLive(t *testing.T) {
	bothModes(t, mem.Options{}, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(func(o *Options) { o.Look = DefaultTTL }), w.machine() // a look would show a the step, too
		k := a.takes(t, Exclusive)
		time.Sleep(DefaultTTL / 4)
		wait := b.wants(t, mode, Forever)
		time.Sleep(DefaultTTL/2 - 5*time.Second)
		w.skew.Store(int64(time.Hour))
		b.clock.setSkew(time.Hour)
		time.Sleep(DefaultTTL/4 + 4*time.Second) // its ticket's refresh shows the step, and the lock has none yet
		wait.waits(t)
		lives(t, k)
		mustRelease(t, k)
		wait.got(t).Release(t.Context())
	})
}

// TestWholeTTLSinceBoot: by the time since boot a lock is stale after its whole ttl, and not
// before, although the store's clock, which was stepped, calls it stale at once.
func TestWholeTTLSinceBoot(t *testing.T) {
	ttls := []time.Duration{MinTTL, DefaultTTL, MaxTTL}
	for _, ttl := range rounds.Fewer(ttls, ttls[:2]) {
		for _, mode := range []Mode{Shared, Exclusive} {
			begin := func(f func(t *testing.T, a, b *machine, k *Lock)) {
				do(t, func(t *testing.T, w *world) {
					a := w.machine(func(o *Options) { o.TTL = ttl })
					b := w.process(a)
					k := a.takes(t, mode)
					a.hooks.Before(outage)
					w.skew.Store(int64(2 * MaxTTL))
					a.clock.setSkew(2 * MaxTTL) // as on a local directory
					f(t, a, b, k)
				})
			}
			begin(func(t *testing.T, a, b *machine, k *Lock) {
				sent := k.sent()
				for _, at := range []struct {
					age  time.Duration
					want Verdict
				}{{ttl/2 + time.Second, Doubtful}, {ttl*9/10 + time.Second/2, Doubtful}, {ttl, Doubtful}, {ttl + time.Millisecond, Stale}} {
					time.Sleep(at.age - (a.clock.Elapsed() - sent))
					if i := b.only(t); i.Verdict != at.want {
						t.Errorf("ttl %v, %v: %v after %v, want %v: %s", ttl, mode, i.Verdict, at.age, at.want, i.Why)
					}
				}
			})
			begin(func(t *testing.T, a, b *machine, k *Lock) {
				sent := k.sent()
				time.Sleep(ttl/2 + time.Second)
				other, err := b.Exclusive(t.Context(), "prune", Wait(ttl))
				if err != nil || alive(k) || a.clock.Elapsed()-sent <= ttl {
					t.Errorf("ttl %v, %v: passed %v after it was refreshed, alive %v, %v", ttl, mode, a.clock.Elapsed()-sent, alive(k), err)
				} else {
					other.Release(t.Context())
				}
			})
		}
	}
}

// TestMergedVerdictIsTheLessCertain: an exclusive lock has the less certain verdict of its two
// objects.
func TestMergedVerdictIsTheLessCertain(t *testing.T) {
	out := merge([]Info{
		{Mode: Exclusive, ID: "x", Keys: []string{"index/lock.exclusive"}, Verdict: Stale},
		{Mode: Exclusive, ID: "x", Keys: []string{"index/lock.intent/x"}, Verdict: Doubtful, Why: "?"},
	})
	if out[0].Verdict == Stale {
		t.Errorf("stale and doubtful merged to %v: break --stale deletes %v", out[0].Verdict, out[0].Keys)
	}
}

// TestVerdictMargin: the store's clock has to be 2 s past the lease's end.
func TestVerdictMargin(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		wrote := time.Now()
		e := &entry{Object: store.Object{Key: "index/lock.shared/x", ModTime: wrote}, kind: kindShared, since: a.clock.Elapsed(), read: true}
		e.lease, e.err = decode(foreign(wrote, true))
		a.clock.setSkew(time.Hour)
		for age, want := range map[time.Duration]Verdict{
			60 * time.Second: Live, 62 * time.Second: Live, 62*time.Second + 1: Stale,
		} {
			now := a.clock.Elapsed()
			a.judge(e, storeTime{wrote.Add(age), now}, now)
			if e.verdict != want {
				t.Errorf("%v old: %v, want %v", age, e.verdict, want)
			}
		}
	})
}

// TestWrongClocks: whichever clock is an hour wrong, or jumps by one while the lock is held, a
// live lock is never passed. A stale one blocks others for at most its ttl and another one in
// which it is watched.
func TestWrongClocks(t *testing.T) {
	const hour = time.Hour
	skews := []struct{ holder, other, store time.Duration }{
		{hour, -hour, 0}, {-hour, -hour, hour}, {-hour, hour, 0}, {hour, hour, -hour},
		{hour, 0, 0}, {-hour, 0, 0}, {0, hour, 0}, {0, -hour, 0}, {0, 0, hour}, {0, 0, -hour},
		{0, 0, 0},
	}
	for _, skew := range rounds.Fewer(skews, skews[:2]) {
		for _, jump := range []bool{false, true} {
			for _, opts := range []mem.Options{{}, {NoTime: true, Precision: time.Second}, {NoStoreClock: true}} {
				bothModes(t, opts, func(t *testing.T, w *world, mode Mode) {
					a, b := w.machine(), w.machine()
					set := func() {
						a.clock.setSkew(skew.holder)
						b.clock.setSkew(skew.other)
						w.skew.Store(int64(skew.store))
					}
					if !jump {
						set()
					}
					k := a.takes(t, mode)
					time.Sleep(29 * time.Second)
					if jump {
						set()
					}
					for range rounds.Fewer(20, 6) {
						b.refused(t, Exclusive)
						time.Sleep(29 * time.Second)
					}
					if !alive(k) {
						t.Fatalf("%+v %v: lost: %v", skew, jump, k.Lost())
					}

					a.hooks.Before(outage)
					refreshed := k.sent()
					pause := time.Second
					if w.clockless {
						pause = 5 * time.Second // for hours
					}
					b.untilFree(t, pause)
					if alive(k) {
						t.Errorf("%+v %v: passed while it was held", skew, jump)
					}
					took := a.clock.Elapsed() - refreshed
					limit := 65 * time.Second
					if w.clockless || skew.holder > 0 || skew.other < 0 || skew.holder > skew.other {
						limit += 62 * time.Second // watched
					}
					if w.clockless {
						limit += max(0, skew.holder-skew.other) // there is but one witness
					}
					if took < DefaultTTL || took > limit {
						t.Errorf("%+v %v: passed %v after the last refresh, want 60s to %v", skew, jump, took, limit)
					}
				})
			}
		}
	}
}

// TestOneClock: on a local directory the machine's wall clock stamps the mod
// times as well, so that a step of it moves both witnesses. Processes of one
// boot go by the time since boot instead.
func TestOneClock(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		do(t, func(t *testing.T, w *world) {
			a := w.machine()
			b := w.process(a)
			k := a.takes(t, Shared)
			time.Sleep(20 * time.Second)
			w.skew.Store(int64(step))
			a.clock.setSkew(step)
			start := time.Now()
			b.refused(t, Exclusive)
			if !alive(k) {
				t.Errorf("step %v: lost: %v", step, k.Lost())
			}
			if time.Since(start) > time.Minute {
				t.Errorf("took %v", time.Since(start))
			}
		})
	}
}

// TestTimeNamespaces: processes of one boot don't compare their clocks since boot if these
// differ, because they are in different time namespaces, or if a body doesn't name its time
// namespace. The second witness is the wall clock.
func TestTimeNamespaces(t *testing.T) {
	for _, c := range []struct{ holder, other string }{{"time:[1]", "time:[2]"}, {"", "time:[1]"}, {"time:[1]", ""}, {"", ""}} {
		for _, ahead := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
			inBoth := func(f func(t *testing.T, w *world, a, b *machine, k *Lock)) {
				do(t, func(t *testing.T, w *world) {
					a := w.machine()
					b := w.machine()
					b.self, a.self.TimeNamespace = a.self, c.holder
					b.self.PID, b.self.TimeNamespace = 200, c.other
					b.clock.start = a.clock.start.Add(-ahead)
					k := a.takes(t, Shared)
					f(t, w, a, b, k)
				})
			}
			// The store's clock is stepped, so that the second witness decides.
			inBoth(func(t *testing.T, w *world, _, b *machine, k *Lock) {
				time.Sleep(20 * time.Second)
				w.skew.Store(int64(time.Hour))
				other, err := b.Exclusive(t.Context(), "prune")
				if !errors.Is(err, ErrHeld) || !alive(k) {
					t.Errorf("%q, and the other in %q, %v ahead: a live lock is passed: %v", c.holder, c.other, ahead, err)
					other.Release(t.Context())
				}
			})
			// A dead holder's lock is passed without being watched.
			inBoth(func(t *testing.T, _ *world, a, b *machine, _ *Lock) {
				a.hooks.Before(outage)
				time.Sleep(DefaultTTL + 10*time.Second)
				start := time.Now()
				other, err := b.Exclusive(t.Context(), "prune")
				if took := time.Since(start); err != nil || took > 5*time.Second {
					t.Errorf("%q, and the other in %q, %v ahead: %v after %v", c.holder, c.other, ahead, err, took)
				} else {
					other.Release(t.Context())
				}
			})
		}
	}
}

// TestOtherTTLs: a lock is judged by its own ttl, shorter or longer than the default one.
func TestOtherTTLs(t *testing.T) {
	ttls := []time.Duration{MinTTL, 30 * time.Second, 10 * time.Minute, MaxTTL}
	for _, ttl := range rounds.Fewer(ttls, ttls[:2]) {
		bothModes(t, mem.Options{}, func(t *testing.T, w *world, mode Mode) {
			a, b := w.machine(func(o *Options) { o.TTL = ttl }), w.machine()
			start := time.Now()
			k := a.takes(t, mode)
			a.hooks.Before(outage)
			b.untilFree(t, ttl/100)
			if alive(k) {
				t.Errorf("ttl %v: passed while held", ttl)
			}
			if took := time.Since(start); took < ttl || took > ttl+ttl/50+5*time.Second {
				t.Errorf("ttl %v: passed after %v", ttl, took)
			}
		})
	}
}

// TestStallIsNotTakenForSkew: a machine that stood still while it took a lock is noticed when
// it stands still again.
func TestStallIsNotTakenForSkew(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		const pause = 70 * time.Second
		armed := false
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "list" && armed {
				armed = false
				a.clock.pause(pause)
				time.Sleep(pause)
			}
			return nil
		})
		for range 3 {
			armed = true
			k := a.takes(t, Shared)
			l, err := a.Status(t.Context())
			if err != nil || len(l) != 1 || l[0].Age > pause/2 {
				t.Errorf("granted by a flag of %v: %v", l, err)
			}
			k.Release(t.Context())
			a.clock.setSkew(0)
		}
	})
}

// diskLock is a lock on a local disk whose clock since boot processes of its machine can't
// compare, with the body that it has.
type diskLock struct {
	name string
	body func(a *machine) []byte
}

// onThisBoot is the body of a lock of this boot.
func onThisBoot(change func(*body)) func(a *machine) []byte {
	return func(a *machine) []byte {
		b := body{Operation: "x", Holder: a.self.Holder(), ID: "1", TTLSeconds: 60, State: StateHeld, IsShared: true, Process: a.self}
		a.stamp(&b, storeTime{}, a.clock.Elapsed())
		change(&b)
		return b.encode()
	}
}

// diskLocks are all of them.
func diskLocks() []diskLock {
	return []diskLock{
		{"another time namespace", onThisBoot(func(b *body) { b.TimeNamespace = "time:[2]" })},
		{"no time namespace", onThisBoot(func(b *body) { b.TimeNamespace = "" })},
		{"no boot", onThisBoot(func(b *body) { b.BootID = "" })},
		{"another machine", onThisBoot(func(b *body) { b.HostID, b.BootID = "far", "far" })},
		{"another client", func(a *machine) []byte { return foreign(a.clock.Now(), true) }},
		{"encrypted", func(a *machine) []byte { return append([]byte{1}, foreign(a.clock.Now(), true)...) }},
	}
}

// onDisk runs f on a local disk: a step of the one wall clock is also one of the store's.
func onDisk(t *testing.T, f func(t *testing.T, w *world, a *machine, step func(time.Duration))) {
	bubble(t, mem.Options{MachineClock: true}, func(t *testing.T, w *world) {
		a := w.machine()
		f(t, w, a, func(d time.Duration) {
			w.skew.Store(int64(d))
			a.clock.setSkew(d)
		})
	})
}

const diskKey = "index/lock.shared/x"

// TestWallClockOfALocalDiskIsNoWitness: there it dates the objects, too. A step of it passes no
// live lock, and a dead one is passed once it was watched for its ttl.
func TestWallClockOfALocalDiskIsNoWitness(t *testing.T) {
	for _, l := range diskLocks() {
		for _, by := range []time.Duration{5 * time.Minute, 20 * time.Hour} {
			onDisk(t, func(t *testing.T, w *world, a *machine, step func(time.Duration)) {
				w.put(diskKey, l.body(a))
				step(by)
				if i := a.only(t); i.Verdict != Doubtful {
					t.Errorf("%s, %v: %v", l.name, by, i.Verdict)
				}
				time.AfterFunc(30*time.Second, func() { w.put(diskKey, l.body(a)) }) // its refresh
				k, err := a.Exclusive(t.Context(), "prune")
				if !errors.Is(err, ErrHeld) {
					t.Errorf("%s: a step of %v passes a live lock: %v", l.name, by, err)
					k.Release(t.Context())
				}
			})
		}
		onDisk(t, func(t *testing.T, w *world, a *machine, _ func(time.Duration)) {
			w.put(diskKey, l.body(a))
			time.Sleep(20 * time.Hour)
			start := time.Now()
			k, err := a.Exclusive(t.Context(), "prune")
			if took := time.Since(start); err != nil || took < DefaultTTL || took > DefaultTTL+20*time.Second {
				t.Fatalf("%s: a dead lock is passed after %v: %v", l.name, took, err)
			}
			k.Release(t.Context())
		})
	}
}

// TestLocalDiskAfterABoot: what is left from an earlier boot is stale by the wall clock, because
// none of that boot's processes is alive; and what is left from this boot by the clock since boot.
func TestLocalDiskAfterABoot(t *testing.T) {
	for boot, body := range map[string]func(a *machine) []byte{"another": diskLocks()[0].body, "boot1": onThisBoot(func(*body) {})} {
		onDisk(t, func(t *testing.T, w *world, a *machine, _ func(time.Duration)) {
			w.put(diskKey, body(a))
			time.Sleep(2 * DefaultTTL)
			a.self.BootID = boot
			if i := a.only(t); i.Verdict != Stale {
				t.Errorf("%s: %v: %s", boot, i.Verdict, i.Why)
			}
		})
	}
}

// TestLocalDiskWithoutBoots: on a system that has no boot id a lock is stale without being watched
// if it is so old that no time zone explains it.
func TestLocalDiskWithoutBoots(t *testing.T) {
	for age, want := range map[time.Duration]Verdict{14 * time.Hour: Doubtful, 16 * time.Hour: Stale} {
		onDisk(t, func(t *testing.T, w *world, a *machine, _ func(time.Duration)) {
			a.self.BootID, a.self.TimeNamespace = "", "none"
			w.put(diskKey, diskLocks()[0].body(a))
			time.Sleep(age)
			if i := a.only(t); i.Verdict != want {
				t.Errorf("%v old: %v: %s", age, i.Verdict, i.Why)
			}
		})
	}
}

// TestLatePutIsDatedFromWhenItIsSeen: if a look shows another mod time of the own flag than the one before,
// an earlier put was applied late, at some time before that.
func TestLatePutIsDatedFromWhenItIsSeen(t *testing.T) {
	own, applied := try{flag: object{key: "k"}}, time.Now()
	for _, late := range []time.Duration{0, 20 * time.Second} {
		mod, seen := applied.Add(late), 10*time.Second+2*late
		own.learn(store.Page{Objects: []store.Object{{Key: "k", Size: 1, ModTime: mod}}}, false, seen)
		if ahead := own.st.when(seen).Sub(mod); ahead > 0 {
			t.Errorf("seen after %v: %v ahead of the store", seen, ahead)
		}
	}
}

// TestOwnFlagIsFoundOnALaterPage: on a store that shows its time by mod times only, an
// acquirer looks for its own flag on later pages too. Without the store's time it would take a
// stale lock for live if the holder's clock was ahead.
func TestOwnFlagIsFoundOnALaterPage(t *testing.T) {
	bubble(t, mem.Options{PageSize: 1, NoTime: true}, func(t *testing.T, w *world) {
		a, b := w.machine(), w.machine()
		a.clock.setSkew(time.Hour)
		k := a.takes(t, Exclusive)
		a.lose(t, k)
		start := time.Now()
		b.untilFree(t, time.Second)
		took(t, start, 0, 2*DefaultTTL+5*time.Second)
	})
}

// TestStoreTimeIsALowerBound: a look's estimate of the store's time is never ahead of it, and
// its own time is no later than the listing, however long requests and answers take.
func TestStoreTimeIsALowerBound(t *testing.T) {
	for name, opts := range map[string]mem.Options{"returned": {}, "not returned": {NoTime: true}, "second": {Precision: time.Second}, "apart": {NoTime: true, PageSize: 1}} {
		for _, gone := range []bool{false, true} {
			sub(t, name, opts, func(t *testing.T, w *world) {
				w.skew.Store(int64(-time.Hour))
				if opts.PageSize == 1 {
					w.put(pointer, foreign(time.Now(), false)) // the own flag is on a later page
				}
				a := w.machine()
				a.hooks.Before(func(context.Context, hookstore.Request) error { time.Sleep(3 * time.Second); return nil })
				var listed atomic.Int64 // the time of the last listing's answer
				a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
					if r.Op == "list" {
						listed.Store(int64(a.clock.Elapsed()))
					}
					time.Sleep(3 * time.Second)
					return err
				})
				tr, err := a.newTry(Shared, "x", nothingYet())
				if err != nil {
					t.Fatal(err)
				}
				check := func(st storeTime) {
					t.Helper()
					if ahead := st.when(a.clock.Elapsed()).Sub(time.Now().Add(time.Duration(w.skew.Load()))); st.known() && ahead > 0 {
						t.Errorf("%v ahead of the store", ahead)
					}
				}
				must(t, a.raise(t.Context(), tr))
				check(tr.st)
				if gone {
					w.delete(tr.flag.key)
					tr.flag.put = false
				}
				for range 2 {
					f, err := a.look(t.Context(), tr, memory{})
					if err != nil {
						t.Fatal(err)
					}
					check(f.st)
					if listed := time.Duration(listed.Load()); f.now > listed {
						t.Errorf("judged by the time %v after the listing", f.now-listed)
					}
				}
				tr.parent = t.Context()
				k := a.hold(tr, 0)
				if err := k.Check(t.Context()); err != nil && !gone && opts.PageSize == 0 {
					t.Error(err)
				}
				check(k.others.st)
				mustRelease(t, k)
			})
		}
	}
}

// TestNoModTimeIsNoWitness: a store without mod times has no first witness, and no lock is
// stale by the other one only.
func TestNoModTimeIsNoWitness(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		e := &entry{kind: kindShared, since: a.clock.Elapsed(), read: true}
		e.lease, e.err = decode(foreign(time.Now().Add(-time.Hour), true))
		a.judge(e, storeTime{time.Now(), a.clock.Elapsed()}, a.clock.Elapsed())
		if e.verdict == Stale {
			t.Error("stale by one clock")
		}
	})
}

// crashed leaves the lock of a crashed holder, long after its ttl.
func (w *world) crashed(t *testing.T, mode Mode, ttl time.Duration) {
	t.Helper()
	m := w.machine(func(o *Options) { o.TTL = ttl })
	k, err := m.acquire(t.Context(), mode, "crashed")
	mustLock(t, k, err)
	m.lose(t, k)
	time.Sleep(2 * ttl)
}

// TestWatchingIsBounded: an acquirer watches a perhaps stale lock for as long as it waits, or
// for two minutes. A lock with a longer ttl counts as held at once.
func TestWatchingIsBounded(t *testing.T) {
	cases := []struct {
		ttl, wait, most time.Duration
		held            bool
	}{
		{DefaultTTL, 0, DefaultTTL + 10*time.Second, false},
		{3 * time.Minute, time.Minute, 2 * time.Minute, true},
		{3 * time.Minute, 4 * time.Minute, 3*time.Minute + 10*time.Second, false},
		{3 * time.Minute, 0, 2 * time.Minute, true},
		{110 * time.Second, 0, 2 * time.Minute, false},
		{MaxTTL, 0, 2 * time.Minute, true},
		{MaxTTL, 15 * time.Minute, 15*time.Minute + 10*time.Second, true},
		{20 * time.Minute, Forever, 20*time.Minute + 10*time.Second, false},
	}
	for _, c := range rounds.Fewer(cases, cases[:3]) {
		bothModes(t, mem.Options{NoStoreClock: true}, func(t *testing.T, w *world, mode Mode) {
			w.crashed(t, Exclusive, c.ttl)
			m, start := w.machine(), time.Now()
			k, err := m.acquire(t.Context(), mode, "x", Wait(c.wait))
			took := time.Since(start)
			if k != nil {
				k.Release(t.Context())
			}
			if errors.Is(err, ErrHeld) != c.held || (err == nil) == c.held || took > c.most || took < c.wait && c.held {
				t.Errorf("%s, ttl %v, wait %v: after %v: %v", mode, c.ttl, c.wait, took, err)
			}
			var held *HeldError
			if errors.As(err, &held) && (held.Holders[0].Verdict != Doubtful || !strings.Contains(err.Error(), "crashed, since 2000-01-01")) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestBreakDoubtful: break-lock --stale leaves a lock that only one clock calls stale, unless
// a person has confirmed it, and always leaves one that no clock calls stale.
func TestBreakDoubtful(t *testing.T) {
	bubble(t, mem.Options{NoStoreClock: true, NoTime: true}, func(t *testing.T, w *world) {
		w.crashed(t, Exclusive, 10*time.Minute)
		w.put("index/lock.shared/encrypted", []byte{1, 2, 3})
		live := w.machine()
		w.put("index/lock.shared/live", foreign(time.Now(), true))
		for _, c := range []struct {
			opts BreakOptions
			left int
		}{{BreakOptions{Stale: true}, 4}, {BreakOptions{Stale: true, Doubtful: true}, 2}} {
			if _, err := live.Break(t.Context(), c.opts); err != nil || len(w.keys()) != c.left {
				t.Errorf("%+v: left %v, %v", c.opts, w.keys(), err)
			}
		}
	})
}
