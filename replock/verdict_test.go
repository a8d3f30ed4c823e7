package replock

import (
	"fmt"
	"sync/atomic"
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

// only returns the one lock in the store, as a machine sees it.
func (m *machine) only(t *testing.T) Info {
	t.Helper()
	infos, err := m.Status(t.Context())
	if err != nil || len(infos) != 1 {
		t.Fatalf("%d locks: %v %v", len(infos), infos, err)
	}
	return infos[0]
}

// TestEncryptedWithoutStoreClock: an encrypted body shows only when it changes. On a store without a clock of its
// own it is watched for a whole ttl from the answer of the first look. It is taken neither for live, as if it were
// refreshed, nor for stale.
func TestEncryptedWithoutStoreClock(t *testing.T) {
	for _, key := range []string{pointer, "index/lock.intent/x", "index/lock.shared/x"} {
		bubble(t, memory.Options{NoStoreClock: true}, func(t *testing.T, w *world) {
			w.put(key, []byte("\x01 this is ciphertext"))
			m := w.machine()
			for _, age := range []time.Duration{0, 10 * time.Minute} {
				time.Sleep(age)
				i := m.only(t)
				assert.That(t, i.Verdict == Doubtful && i.Why == "its body is encrypted, and the store has no clock of its own",
					"%s, %v old: %v, %q", key, age, i.Verdict, i.Why)
			}
			const late = 7 * time.Second
			m.hooks.After(firstAnswered("list", "", func(hookstore.Request) { time.Sleep(late) }))
			start := time.Now()
			k := m.takes(t, Exclusive)
			took(t, start, late+wire.ForeignTTL, late+wire.ForeignTTL+time.Second)
			w.leavesNothing(k)
		})
	}
}

// TestChangedIsLive: a lock that is refreshed while it is watched is live, although both clocks call it stale.
func TestChangedIsLive(t *testing.T) {
	bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
		b, k := w.machine(), w.machine(func(o *Options) { o.Look = DefaultTTL }).takes(t, Exclusive) // a look would show it the step, too
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
		begin := func(f func(t *testing.T, a, b *machine, k *Lock, sent time.Duration)) {
			bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
				a, k := w.holder(t, mode, func(o *Options) { o.TTL = ttl })
				b := w.process(a)
				a.hooks.Before(outage)
				w.skew.Store(int64(2 * MaxTTL))
				a.clock.setSkew(2 * MaxTTL) // as on a local directory
				f(t, a, b, k, k.lease.Owner().(*term).sent())
			})
		}
		begin(func(t *testing.T, a, b *machine, k *Lock, sent time.Duration) {
			for _, age := range []time.Duration{ttl/2 + time.Second, ttl*9/10 + time.Second/2, ttl, ttl + time.Millisecond} {
				time.Sleep(age - (a.clock.Elapsed() - sent))
				if i := b.only(t); i.Verdict != Doubtful && age <= ttl || i.Verdict != Stale && age > ttl {
					t.Errorf("ttl %v: %v after %v: %s", ttl, i.Verdict, age, i.Why)
				}
			}
		})
		begin(func(t *testing.T, a, b *machine, k *Lock, sent time.Duration) {
			time.Sleep(ttl/2 + time.Second)
			b.takes(t, Exclusive, WithWait(ttl))
			assert.That(t, !alive(k) && a.clock.Elapsed()-sent > ttl,
				"ttl %v: passed %v after it was refreshed, alive %v", ttl, a.clock.Elapsed()-sent, alive(k))
		})
	}
}

// TestMergedVerdictIsTheLessCertain: an exclusive lock has the less certain verdict of its two objects. Shared locks are
// never merged.
func TestMergedVerdictIsTheLessCertain(t *testing.T) {
	out := merge([]Info{
		{Mode: Exclusive, ID: "x", Keys: []string{pointer}, Verdict: Stale},
		{Mode: Exclusive, ID: "x", Keys: []string{"index/lock.intent/x"}, Verdict: Doubtful, Why: "?"},
	})
	equal(t, "stale and doubtful", out[0].Verdict, Doubtful)
	out = merge([]Info{{Mode: Shared, ID: "x", Verdict: Stale}, {Mode: Shared, ID: "x", Verdict: Live}})
	equal(t, "shared locks with one id", len(out), 2)
}

// TestWrongClocks: whichever clock is an hour wrong, or jumps by one while the lock is held, a live lock is never
// passed. A stale one blocks others for at most its ttl and another one in which it is watched.
func TestWrongClocks(t *testing.T) {
	const hour = time.Hour
	skews := []struct{ holder, other, store time.Duration }{
		{hour, -hour, 0}, {-hour, -hour, hour}, {-hour, hour, 0}, {hour, hour, -hour},
		{hour, 0, 0}, {-hour, 0, 0}, {0, hour, 0}, {0, -hour, 0}, {0, 0, hour}, {0, 0, -hour}, {0, 0, 0},
	}
	for _, skew := range rounds.Fewer(skews, skews[:2]) {
		for _, jump := range yesNo {
			conditions := kinds{"kept": {}, "second": stores["second"], "clockless": stores["clockless"]} // without, a step is a pause
			conditions.modes(t, func(t *testing.T, w *world, mode Mode) {
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
				set()
				for range rounds.Fewer(20, 6) {
					b.refused(t, Exclusive)
					time.Sleep(29 * time.Second)
				}
				lives(t, k)

				a.hooks.Before(outage)
				refreshed := k.lease.Owner().(*term).sent()
				pause, limit := time.Second, 65*time.Second
				if w.clockless || skew.holder > 0 || skew.other < 0 || skew.holder > skew.other {
					limit += 62 * time.Second // watched
				}
				if w.clockless {
					pause = 5 * time.Second                 // for hours
					limit += max(0, skew.holder-skew.other) // there is but one witness
				}
				b.untilFree(t, Exclusive, pause)
				assert.That(t, !alive(k), "%+v %v: passed while it was held", skew, jump)
				took := a.clock.Elapsed() - refreshed
				assert.That(t, took >= DefaultTTL && took <= limit,
					"%+v %v: passed %v after the last refresh, want 60s to %v", skew, jump, took, limit)
			})
		}
	}
}

// TestCrashedHolderOfAWrongClock: a holder whose clock was days ahead crashes, and its ttl is too long to be watched.
// It blocks a job that doesn't wait for little longer than a day. A live lock isn't taken for long dead when the clock
// of a store that had booted in 1970 is set right, also if its holder's clock is an hour ahead.
func TestCrashedHolderOfAWrongClock(t *testing.T) {
	long := func(o *Options) { o.TTL = 15 * time.Minute }
	threeKinds.each(t, func(t *testing.T, w *world) {
		a, b := w.machine(long), w.machine(long)
		a.clock.setSkew(100 * time.Hour)
		a.takes(t, Shared)
		a.hooks.Before(outage)
		for range 26 {
			b.refused(t, Exclusive)
			time.Sleep(time.Hour)
		}
		time.Sleep(2 * time.Hour)
		b.takes(t, Exclusive)
	})
	eachOf(t, []time.Duration{0, time.Hour}, func(t *testing.T, w *world, ahead time.Duration) {
		a, b := w.machine(long), w.machine(long)
		a.clock.setSkew(ahead)
		w.skew.Store(int64(-time.Since(time.Unix(0, 0))))
		k := a.takes(t, Exclusive)
		time.Sleep(time.Minute)
		w.skew.Store(0)
		b.refused(t, Exclusive)
		lives(t, k)
	})
}

// onThisBoot is the body of a lock of this boot.
func onThisBoot(change func(*wire.Body)) func(a *machine) []byte {
	return func(a *machine) []byte {
		b := wire.Body{Operation: "x", Holder: a.self.Holder(), ID: "1", TTLSeconds: 60, State: wire.StateHeld, IsShared: true, Process: a.self}
		a.stamp(&b, verdict.StoreTime{}, a.clock.Elapsed())
		change(&b)
		return b.Encode()
	}
}

func inAnotherNamespace(b *wire.Body) { b.TimeNamespace = "time:[2]" }

// onDisk runs f on a local disk: the one wall clock dates the objects, too.
func onDisk(t *testing.T, f func(t *testing.T, w *world, a *machine)) {
	bubble(t, memory.Options{MachineClock: true}, func(t *testing.T, w *world) { f(t, w, w.machine()) })
}

const diskKey = "index/lock.shared/x"

// TestWallClockOfALocalDiskIsNoWitness: it dates the objects. A step passes no live lock; a dead one is watched.
func TestWallClockOfALocalDiskIsNoWitness(t *testing.T) {
	for name, body := range map[string]func(a *machine) []byte{
		"another time namespace": onThisBoot(inAnotherNamespace),
		"no time namespace":      onThisBoot(func(b *wire.Body) { b.TimeNamespace = "" }),
		"no boot":                onThisBoot(func(b *wire.Body) { b.BootID = "" }),
		"another machine":        onThisBoot(func(b *wire.Body) { b.HostID, b.BootID = "far", "far" }),
		"another client":         func(a *machine) []byte { return foreign(a.clock.Now(), true) },
		"encrypted":              func(a *machine) []byte { return append([]byte{1}, foreign(a.clock.Now(), true)...) },
	} {
		for _, by := range []time.Duration{5 * time.Minute, 20 * time.Hour} {
			onDisk(t, func(t *testing.T, w *world, a *machine) {
				w.put(diskKey, body(a))
				w.skew.Store(int64(by))
				a.clock.setSkew(by)
				equal(t, fmt.Sprint(name, " ", by), a.only(t).Verdict, Doubtful)
				time.AfterFunc(30*time.Second, func() { w.put(diskKey, body(a)) }) // its refresh
				a.refused(t, Exclusive)
			})
		}
		onDisk(t, func(t *testing.T, w *world, a *machine) {
			w.put(diskKey, body(a))
			time.Sleep(20 * time.Hour)
			start := time.Now()
			a.takes(t, Exclusive)
			took(t, start, DefaultTTL, DefaultTTL+20*time.Second)
		})
	}
}

// TestLocalDiskAfterABoot: a lock that is left from an earlier boot is stale by the wall clock, because
// none of that boot's processes is alive; and one that is left from this boot by the clock since boot.
func TestLocalDiskAfterABoot(t *testing.T) {
	for boot, change := range map[string]func(*wire.Body){"another": inAnotherNamespace, "boot1": func(*wire.Body) {}} {
		onDisk(t, func(t *testing.T, w *world, a *machine) {
			w.put(diskKey, onThisBoot(change)(a))
			time.Sleep(2 * DefaultTTL)
			a.self.BootID = boot
			equal(t, boot, a.only(t).Verdict, Stale)
		})
	}
}

// TestLocalDiskWithoutBoots: on a system that has no boot id a lock is stale without being watched
// if it is so old that no time zone explains it.
func TestLocalDiskWithoutBoots(t *testing.T) {
	for age, want := range map[time.Duration]Verdict{26 * time.Hour: Doubtful, 28 * time.Hour: Stale} {
		onDisk(t, func(t *testing.T, w *world, a *machine) {
			a.self.BootID, a.self.TimeNamespace = "", "none"
			w.put(diskKey, onThisBoot(inAnotherNamespace)(a))
			time.Sleep(age)
			equal(t, fmt.Sprint(age, " old"), a.only(t).Verdict, want)
		})
	}
}

// TestLatePutIsDatedFromWhenItIsSeen: if a look shows another mod time of the own flag than the one before,
// an earlier put was applied late, at some time before that.
func TestLatePutIsDatedFromWhenItIsSeen(t *testing.T) {
	own, applied := attempt{flag: object{key: "k"}}, time.Now()
	for _, late := range []time.Duration{0, 20 * time.Second} {
		mod, seen := applied.Add(late), 10*time.Second+2*late
		own.learn(store.Page{Objects: []store.Object{{Key: "k", Size: 1, ModTime: mod}}}, false, seen)
		ahead := own.st.When(seen).Sub(mod)
		assert.That(t, ahead <= 0, "seen after %v: %v ahead of the store", seen, ahead)
	}
}

// TestOwnFlagIsFoundOnALaterPage: on a store that shows its time by mod times only, an
// acquirer looks for its own flag on later pages too. Without the store's time it would take a
// stale lock for live if the holder's clock was ahead.
func TestOwnFlagIsFoundOnALaterPage(t *testing.T) {
	bubble(t, memory.Options{PageSize: 1, NoTime: true}, func(t *testing.T, w *world) {
		a, b := w.machine(), w.machine()
		a.clock.setSkew(time.Hour)
		a.lose(t, a.takes(t, Exclusive))
		start := time.Now()
		b.untilFree(t, Exclusive, time.Second)
		took(t, start, 0, 2*DefaultTTL+5*time.Second)
	})
}

// TestStoreTimeIsALowerBound: a look's estimate of the store's time is never ahead of it, and
// its own time is no later than the listing, however long requests and answers take.
func TestStoreTimeIsALowerBound(t *testing.T) {
	for name, opts := range map[string]memory.Options{"returned": {}, "not returned": {NoTime: true}, "second": {Precision: time.Second}, "apart": {NoTime: true, PageSize: 1}} {
		for _, gone := range []bool{false, true} {
			sub(t, name, opts, func(t *testing.T, w *world) {
				w.skew.Store(int64(-time.Hour))
				if opts.PageSize == 1 {
					w.put(pointer, foreign(time.Now(), false)) // the own flag is on a later page
				}
				a := w.machine()
				a.hooks.Before(slow("", "", 3*time.Second))
				var listed atomic.Int64 // the time of the last listing's answer
				a.hooks.After(answered("", "", func(r hookstore.Request) {
					if r.Op == "list" {
						listed.Store(int64(a.clock.Elapsed()))
					}
					time.Sleep(3 * time.Second)
				}))
				tr := a.try(Shared)
				check := func(st verdict.StoreTime) {
					t.Helper()
					ahead := st.When(a.clock.Elapsed()).Sub(time.Now().Add(time.Duration(w.skew.Load())))
					assert.That(t, !st.Known() || ahead <= 0, "%v ahead of the store", ahead)
				}
				assert.OK(t, a.raise(t.Context(), tr))
				check(tr.st)
				if gone {
					w.delete(tr.flag.key)
					tr.flag.put = false
				}
				for range 2 {
					f, err := a.look(t.Context(), tr, verdict.Memory{})
					assert.OK(t, err)
					check(f.St)
					listed := time.Duration(listed.Load())
					assert.That(t, f.Now <= listed, "judged by the time %v after the listing", f.Now-listed)
				}
				tr.parent = t.Context()
				k := a.hold(tr)
				if err := k.Check(t.Context()); err != nil && !gone && opts.PageSize == 0 {
					t.Error(err)
				}
				check(*k.now.Load())
				lock, _ := locked(k, nil)
				mustRelease(t, lock)
			})
		}
	}
}

// crashed leaves the exclusive lock of a crashed holder, long after its ttl.
func (w *world) crashed(t *testing.T, ttl time.Duration) {
	t.Helper()
	m, k := w.holder(t, Exclusive, func(o *Options) { o.TTL = ttl })
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
		bothModes(t, memory.Options{NoStoreClock: true}, func(t *testing.T, w *world, mode Mode) {
			w.crashed(t, c.ttl)
			start := time.Now()
			if !c.held {
				w.machine().takes(t, mode, WithWait(c.wait))
				took(t, start, 0, c.most)
				return
			}
			held := w.machine().refused(t, mode, WithWait(c.wait))
			took(t, start, c.wait, c.most)
			equal(t, "verdict", held.Holders[0].Verdict, Doubtful)
			assert.Says(t, held, ErrHeld, "m1 (pid 101), operation x, since 2000-01-01")
		})
	}
}

// TestBreakDoubtful: break-lock --stale leaves a lock that only one clock calls stale, unless
// a person has confirmed it, and always leaves one that no clock calls stale.
func TestBreakDoubtful(t *testing.T) {
	bubble(t, memory.Options{NoStoreClock: true, NoTime: true}, func(t *testing.T, w *world) {
		w.crashed(t, 10*time.Minute)
		w.put("index/lock.shared/encrypted", []byte{1, 2, 3})
		w.put("index/lock.shared/live", foreign(time.Now(), true))
		w.machine().breaks(t, BreakOptions{Stale: true}, 0)
		w.machine().breaks(t, BreakOptions{Stale: true, Doubtful: true}, 1)
		w.stores("index/lock.shared/encrypted", "index/lock.shared/live")
	})
}
