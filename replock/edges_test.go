package replock

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/tap"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// expiresIn is what clients of the original protocol make of an object.
func (w *world) expiresIn(key string) time.Duration {
	w.t.Helper()
	raw, _, err := w.mem.Get(context.Background(), key, maxBody)
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := decode(raw)
	if err != nil {
		w.t.Fatal(err)
	}
	return time.Until(l.expires)
}

// TestExpiresAheadAfterAPause: the clocks of a machine that its hypervisor has paused are behind,
// and its locks don't look expired for that.
func TestExpiresAheadAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		time.Sleep(5 * time.Second)
		a.clock.pause(10 * time.Minute)
		time.Sleep(10*time.Minute + 20*time.Second)
		for range 20 {
			if left := w.expiresIn("index/lock.exclusive"); !alive(k) || left < time.Minute {
				t.Fatalf("lost %v; it expires in %v", k.Lost(), left)
			}
			time.Sleep(10 * time.Second)
		}
		k.Release(t.Context())
	})
}

// TestMisdatedIsRefreshedSoon: a lock that was dated by a wall clock which is behind is refreshed
// as soon as the store lets it.
func TestMisdatedIsRefreshedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		a.clock.setSkew(-time.Hour)
		puts := 0
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "put" {
				if puts++; puts == 2 || puts == 3 {
					return errOutage
				}
			}
			return nil
		})
		k, err := a.Shared(t.Context(), "x")
		mustLock(t, k, err)
		time.Sleep(4 * time.Second)
		if left := w.expiresIn(k.Key()); left < time.Minute {
			t.Errorf("it expires in %v", left)
		}
		k.Release(t.Context())
	})
}

// TestLatePointerIsTakenDown: a put of lock.exclusive that is applied when another one of it was
// answered, and deleted, leaves nothing behind, whether the lock is granted or refused.
func TestLatePointerIsTakenDown(t *testing.T) {
	for _, granted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{})
			a, b := w.machine(), w.machine()
			s, err := b.Shared(t.Context(), "backup")
			mustLock(t, s, err)
			puts := 0
			var late []byte
			a.tap.Before(func(_ context.Context, r tap.Request) error {
				if r.Op == "put" && r.Key == pointer {
					if puts++; puts == 1 {
						late = r.Body
						return errOutage
					}
				}
				return nil
			})
			a.tap.After(func(ctx context.Context, r tap.Request, err error) error {
				if r.Op == "delete" && r.Key == pointer && late != nil {
					if _, err := w.mem.Put(ctx, r.Key, late, store.PutOptions{IfAbsent: true}); err != nil {
						t.Error(err)
					}
					late = nil
					if granted {
						s.Release(ctx)
					}
				}
				return err
			})
			k, err := a.Exclusive(t.Context(), "prune")
			if granted {
				mustLock(t, k, err).Release(t.Context())
			} else {
				mustHeld(t, k, err)
			}
			for _, key := range w.keys() {
				if !strings.Contains(key, "/lock.shared/") {
					t.Errorf("granted %t: left: %s", granted, key)
				}
			}
			s.Release(t.Context())
			w.empty()
		})
	}
}

// TestStallIsNoSkew: that a machine stood still once while it took a lock doesn't hide that it
// does so again.
func TestStallIsNoSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		const pause = 70 * time.Second
		armed := false
		a.tap.Before(func(_ context.Context, r tap.Request) error {
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

// TestPolicyOfSharedLocksRefusesNobody: what a policy for shared locks alone allows to put under
// a name's other keys is no lock.
func TestPolicyOfSharedLocksRefusesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		w.put("index/locks/n/lock.exclusive/lock.shared/x", []byte("x"))
		w.put("index/locks/n/lock.intent/lock.shared/x", []byte("x"))
		for _, mode := range []Mode{Shared, Exclusive} {
			k, err := w.machine(func(o *Options) { o.Name = "n" }).acquire(t.Context(), mode, "x")
			mustLock(t, k, err).Release(t.Context())
		}
	})
}
