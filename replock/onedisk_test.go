package replock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/store/mem"
)

// diskLock is a lock on a local disk whose clock since boot processes of its machine can't
// compare, with the body that it has.
type diskLock struct {
	name string
	body func(a *machine) []byte
}

// diskLocks are all of them.
func diskLocks() []diskLock {
	ours := func(change func(*body)) func(a *machine) []byte {
		return func(a *machine) []byte {
			b := body{Operation: "x", Holder: a.self.Holder(), ID: "1", TTLSeconds: 60, State: StateHeld, IsShared: true, Process: a.self}
			a.stamp(&b, storeTime{}, a.clock.Elapsed())
			change(&b)
			return b.encode()
		}
	}
	return []diskLock{
		{"another time namespace", ours(func(b *body) { b.TimeNamespace = "time:[2]" })},
		{"no time namespace", ours(func(b *body) { b.TimeNamespace = "" })},
		{"no boot", ours(func(b *body) { b.BootID = "" })},
		{"another machine", ours(func(b *body) { b.HostID, b.BootID = "far", "far" })},
		{"another client", func(a *machine) []byte { return foreign(a.clock.Now(), true) }},
		{"encrypted", func(a *machine) []byte { return append([]byte{1}, foreign(a.clock.Now(), true)...) }},
	}
}

// onDisk runs f on a local disk: a step of the one wall clock is also one of the store's.
func onDisk(t *testing.T, f func(t *testing.T, w *world, a *machine, step func(time.Duration))) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{MachineClock: true})
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
// none of that boot's processes is alive.
func TestLocalDiskAfterABoot(t *testing.T) {
	onDisk(t, func(t *testing.T, w *world, a *machine, _ func(time.Duration)) {
		w.put(diskKey, diskLocks()[0].body(a))
		time.Sleep(2 * DefaultTTL)
		a.self.BootID = "another"
		if i := a.only(t); i.Verdict != Stale {
			t.Errorf("%v: %s", i.Verdict, i.Why)
		}
	})
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
