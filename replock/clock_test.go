package replock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/store/mem"
)

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
				for _, mode := range []Mode{Shared, Exclusive} {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t, opts)
						a, b := w.machine(), w.machine()
						set := func() {
							a.clock.setSkew(skew.holder)
							b.clock.setSkew(skew.other)
							w.skew.Store(int64(skew.store))
						}
						if !jump {
							set()
						}
						k, err := a.acquire(t.Context(), mode, "x")
						mustLock(t, k, err)
						time.Sleep(29 * time.Second)
						if jump {
							set()
						}
						for range 20 {
							other, err := b.Exclusive(t.Context(), "prune")
							mustHeld(t, other, err)
							time.Sleep(29 * time.Second)
						}
						if !alive(k) {
							t.Fatalf("%+v %v: lost: %v", skew, jump, k.Lost())
						}

						a.hooks.Before(outage)
						refreshed := k.sent()
						for {
							other, err := b.Exclusive(t.Context(), "prune")
							if err == nil {
								other.Release(t.Context())
								break
							}
							time.Sleep(time.Second)
						}
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
						k.Release(t.Context())
					})
				}
			}
		}
	}
}

// TestOneClock: on a local directory the machine's wall clock stamps the mod
// times as well, so that a step of it moves both witnesses. Processes of one
// boot go by the time since boot instead.
func TestOneClock(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{})
			a := w.machine()
			b := w.process(a)
			k, err := a.Shared(t.Context(), "backup")
			mustLock(t, k, err)
			time.Sleep(20 * time.Second)
			w.skew.Store(int64(step))
			a.clock.setSkew(step)
			start := time.Now()
			other, err := b.Exclusive(t.Context(), "prune")
			mustHeld(t, other, err)
			if !alive(k) {
				t.Errorf("step %v: lost: %v", step, k.Lost())
			}
			if time.Since(start) > time.Minute {
				t.Errorf("took %v", time.Since(start))
			}
			k.Release(t.Context())
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
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, mem.Options{})
					a := w.machine()
					b := w.machine()
					b.self, a.self.TimeNamespace = a.self, c.holder
					b.self.PID, b.self.TimeNamespace = 200, c.other
					b.clock.start = a.clock.start.Add(-ahead)
					k, err := a.Shared(t.Context(), "backup")
					mustLock(t, k, err)
					f(t, w, a, b, k)
					k.Release(t.Context())
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
		for _, mode := range []Mode{Shared, Exclusive} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				a, b := w.machine(func(o *Options) { o.TTL = ttl }), w.machine()
				start := time.Now()
				k, err := a.acquire(t.Context(), mode, "x")
				mustLock(t, k, err)
				a.hooks.Before(outage)
				b.untilFree(t, ttl/100)
				if alive(k) {
					t.Errorf("ttl %v: passed while held", ttl)
				}
				if took := time.Since(start); took < ttl || took > ttl+ttl/50+5*time.Second {
					t.Errorf("ttl %v: passed after %v", ttl, took)
				}
				a.hooks.Before(nil)
				k.Release(t.Context())
			})
		}
	}
}

// TestStallIsNotTakenForSkew: a machine that stood still while it took a lock is noticed when
// it stands still again.
func TestStallIsNotTakenForSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
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
			k, err := a.Shared(t.Context(), "x")
			mustLock(t, k, err)
			l, err := a.Status(t.Context())
			if err != nil || len(l) != 1 || l[0].Age > pause/2 {
				t.Errorf("granted by a flag of %v: %v", l, err)
			}
			k.Release(t.Context())
			a.clock.setSkew(0)
		}
	})
}
