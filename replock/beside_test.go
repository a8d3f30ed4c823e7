package replock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/store/mem"
)

// comesBeside puts a lock of a client of the original protocol, which has passed ours.
func (w *world) comesBeside(mode Mode) {
	key := pointer
	if mode == Exclusive {
		key = "index/lock.shared/theirs"
	}
	w.put(key, foreign(time.Now(), mode == Exclusive))
}

// TestLooksSoonAfterAcquiring: a client of the original protocol that was let in while ours
// acquired is a loss within seconds, however seldom the holder looks. A lock with a name has
// no such clients.
func TestLooksSoonAfterAcquiring(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		seldom := func(o *Options) { o.Look = o.TTL }
		k, err := w.machine(func(o *Options) { o.TTL = 10 * time.Minute }, seldom).acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		w.comesBeside(mode)
		if took := ended(t, k, 2*time.Second+2*transient); took < time.Second {
			t.Errorf("lost after %v, before it can have been withdrawn", took)
		}
		k.Release(t.Context())
	})
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t, mem.Options{}).machine(func(o *Options) { o.Name = "mine" })
		k, err := m.Shared(t.Context(), "x")
		mustLock(t, k, err)
		m.hooks.Count()
		time.Sleep(5 * time.Second)
		if n, by := m.hooks.Count(); n > 0 {
			t.Errorf("a lock with a name costs %v", by)
		}
		k.Release(t.Context())
	})
}

// TestCheckWaitsForYoungConflicts: Check doesn't call a lock held while another client's,
// which is too young to be judged, stands beside it.
func TestCheckWaitsForYoungConflicts(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		k, err := w.machine().acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		w.comesBeside(mode)
		if err := k.Check(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("confirmed: %v", err)
		}
		k.Release(t.Context())
	})
}

// TestWhatWasPutBesideIsHeldInDoubt: what stands beside a held lock, and wasn't there when it was
// taken, ends it unless it is certainly stale: an encrypted body, whose age no clock tells, too, and
// one that this machine's clock alone calls expired.
func TestWhatWasPutBesideIsHeldInDoubt(t *testing.T) {
	bodies := map[string]func(shared bool) []byte{
		"encrypted": func(bool) []byte { return []byte{1, 2, 3} },
		"expired":   func(shared bool) []byte { return foreign(time.Now().Add(-time.Hour), shared) },
	}
	for name, opts := range map[string]mem.Options{
		"no store clock": {NoStoreClock: true}, "no time": {NoStoreClock: true, NoTime: true}, "no time on pages of one": {NoTime: true, PageSize: 1},
	} {
		for kind, body := range bodies {
			if kind == "expired" && !opts.NoStoreClock {
				continue // the store's clock confirms that it has
			}
			t.Run(name+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, opts)
					w.put("index/lock.shared/000", body(true)) // which keeps no shared lock out
					k, err := w.machine().Shared(t.Context(), "x")
					mustLock(t, k, err)
					w.put(pointer, body(false))
					ended(t, k, 3*DefaultLook)
					k.Release(t.Context())
				})
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoStoreClock: true})
		k, err := w.machine().Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		w.put("index/lock.shared/theirs", []byte{1, 2, 3})
		ended(t, k, 3*DefaultLook)
		k.Release(t.Context())
	})
}

// TestWhatWasPassedIsNotHeld: the stale lock.exclusive that a shared lock has passed, and left, is
// no conflict later, although a clock that was corrected a little says so.
func TestWhatWasPassedIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		w.put(pointer, foreign(time.Now(), false))
		m := w.machine()
		m.clock.setSkew(-margin)
		time.Sleep(foreignTTL + margin + time.Millisecond)
		k, err := m.Shared(t.Context(), "x")
		mustLock(t, k, err)
		m.clock.setSkew(-2*margin + 100*time.Millisecond)
		if err := k.Check(t.Context()); err != nil {
			t.Error(err)
		}
		k.Release(t.Context())
	})
}

// TestExpiresAMinuteAhead: clients of the original protocol judge by expires_at only. It is a
// minute ahead at every moment of a held lock, whatever its ttl, even if no refresh is
// answered any more.
func TestExpiresAMinuteAhead(t *testing.T) {
	for _, ttl := range []time.Duration{MinTTL, DefaultTTL, time.Hour} {
		for _, mode := range []Mode{Shared, Exclusive} {
			t.Run(fmt.Sprint(ttl, mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, mem.Options{})
					a := w.machine(func(o *Options) { o.TTL = ttl })
					k, err := a.acquire(t.Context(), mode, "x")
					mustLock(t, k, err)
					for began := time.Now(); alive(k); time.Sleep(ttl / 120) {
						if time.Since(began) > 2*ttl {
							a.hooks.Before(outage)
						}
						for _, key := range w.keys() {
							raw, _, err := w.mem.Get(t.Context(), key, maxBody)
							if err != nil {
								t.Fatal(err)
							}
							l, err := decode(raw)
							if left := time.Until(l.expires); err != nil || left < time.Minute || left > max(ttl, ttl+time.Minute) {
								t.Fatalf("%s expires in %v, %v", key, left, err)
							}
						}
					}
					a.hooks.Before(nil)
					k.Release(t.Context())
				})
			})
		}
	}
}

// TestExpiresByTheStoresClock: a wall clock that is behind doesn't make a lock look expired to
// clients of the original protocol, from a moment after it was taken.
func TestExpiresByTheStoresClock(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		for _, skew := range []time.Duration{-time.Hour, -margin - time.Second, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				a := w.machine()
				a.clock.setSkew(skew)
				k, err := a.acquire(t.Context(), mode, "x")
				mustLock(t, k, err)
				time.Sleep(time.Millisecond)
				for range 100 {
					for _, key := range w.keys() {
						raw, _, err := w.mem.Get(t.Context(), key, maxBody)
						l, derr := decode(raw)
						if left := time.Until(l.expires); err != nil || derr != nil || left < 90*time.Second-DefaultTTL/2 {
							t.Fatalf("%v: %s expires in %v: %v %v", skew, key, left, err, derr)
						}
					}
					time.Sleep(time.Second)
				}
				k.Release(t.Context())
			})
		}
	}
}

// TestLongDeadEncrypted: an encrypted body isn't watched if it is older than any clock error,
// by the store's clock and by this machine's.
func TestLongDeadEncrypted(t *testing.T) {
	for _, c := range []struct {
		name              string
		age, store, wall  time.Duration // the steps come after the body
		noClock, isPassed bool
	}{
		{name: "a day old", age: 24 * time.Hour, isPassed: true},
		{name: "ten minutes old", age: 10 * time.Minute},
		{name: "the store's clock is stepped", age: 10 * time.Minute, store: 24 * time.Hour},
		{name: "this machine's clock is stepped", age: 10 * time.Minute, wall: 24 * time.Hour},
		{name: "both are in the wrong zone", age: 10 * time.Minute, wall: 14 * time.Hour, store: 14 * time.Hour},
		{name: "the store has no clock", age: 24 * time.Hour, noClock: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{NoStoreClock: c.noClock})
				w.put("index/lock.shared/theirs", []byte("\x01 this is ciphertext"))
				time.Sleep(c.age)
				m := w.machine()
				w.skew.Store(int64(c.store))
				m.clock.setSkew(c.wall)
				began := time.Now()
				k, err := m.Exclusive(t.Context(), "prune")
				mustLock(t, k, err)
				if took := time.Since(began); took < foreignTTL != c.isPassed {
					t.Errorf("passed after %v", took)
				}
				k.Release(t.Context())
			})
		})
	}
}

// TestBesideTheOriginal: if two conflicting clients come at one time, one of ours and one of
// the original protocol, and both were let in, ours knows within seconds. Two of the original
// protocol never know.
func TestBesideTheOriginal(t *testing.T) {
	n := rounds.Fewer(1000, 50)
	for _, trip := range []time.Duration{0, 40 * time.Millisecond} {
		for _, modes := range [][2]Mode{{Exclusive, Shared}, {Shared, Exclusive}, {Exclusive, Exclusive}} {
			in := map[string]int{}
			for round := range n {
				for name, second := range map[string]func(*world) client{"theirs": (*world).originals, "ours": (*world).ours} {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t, mem.Options{})
						was, is := w.race(t, trip, round, [2]client{w.originals(), second(w)}, modes)
						if was {
							in[name+", at first"]++
						}
						if is {
							in[name]++
						}
					})
				}
			}
			t.Logf("%v a round trip, their %v lock and another %v one: both were let in %v of %d times", trip, modes[0], modes[1], in, n)
			if in["ours"] > 0 {
				t.Errorf("%v a round trip, their %v lock and our %v one: both held %d of %d times", trip, modes[0], modes[1], in["ours"], n)
			}
		}
	}
}

// race makes two clients take a lock at almost one time. It reports whether both were let in,
// and whether both believe that they hold it 6 s later.
func (w *world) race(t *testing.T, trip time.Duration, round int, clients [2]client, modes [2]Mode) (was, is bool) {
	var locks [2]held
	var wg sync.WaitGroup
	for n, c := range clients {
		c.hooks.Before(func(context.Context, hookstore.Request) error { time.Sleep(c.jitter(trip) / 2); return nil })
		c.hooks.After(func(_ context.Context, _ hookstore.Request, err error) error {
			time.Sleep(c.jitter(trip) / 2)
			return err
		})
		wg.Go(func() {
			time.Sleep(time.Duration((round*(2*n-1)+1000)%7) * trip / 3)
			if k, err := c.lock(t.Context(), modes[n]); err == nil {
				locks[n] = k
			}
		})
	}
	wg.Wait()
	was = both(locks[0], locks[1])
	time.Sleep(6 * time.Second)
	is = both(locks[0], locks[1])
	for n, k := range locks {
		if k != nil {
			clients[n].hooks.Before(nil)
			k.Release(context.Background())
		}
	}
	return was, is
}
