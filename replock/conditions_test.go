package replock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestProveAbsent: if If-None-Match is only claimed, the first exclusive acquire of a process
// finds out, when it puts its flag, whether the server keeps it. If it doesn't, this acquire and
// the next ones look before they write lock.exclusive.
func TestProveAbsent(t *testing.T) {
	type cost struct{ trips, requests int }
	for _, c := range []struct {
		name        string
		opts        mem.Options
		first, next cost
	}{
		{"kept", mem.Options{IfAbsent: mem.Kept}, cost{2, 3}, cost{2, 3}},
		{"claimed", mem.Options{IfAbsent: mem.Claimed}, cost{3, 5}, cost{2, 3}},
		{"ignored", mem.Options{IfAbsent: mem.Ignored}, cost{4, 6}, cost{4, 4}},
		{"lacked", mem.Options{IfAbsent: mem.Lacked}, cost{4, 4}, cost{4, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, c.opts)
				m := w.machine()
				for i, want := range []cost{c.first, c.next, c.next} {
					var k *Lock
					trips, requests, by := m.trips(func() {
						var err error
						k, err = m.Exclusive(t.Context(), "prune")
						mustLock(t, k, err)
					})
					k.Release(t.Context())
					if trips.Truncate(time.Second) != time.Duration(want.trips)*time.Second || requests != want.requests {
						t.Errorf("acquire %d: %v round trips, %d requests %v, want %d/%d", i, trips, requests, by, want.trips, want.requests)
					}
				}
			})
		})
	}
}

// TestProveAbsentHarmless: a process tries out no condition on another's lock.exclusive. It puts
// that only with a condition that the server was seen to keep.
func TestProveAbsentHarmless(t *testing.T) {
	for name, opts := range map[string]mem.Options{"claimed": {IfAbsent: mem.Claimed}, "ignored": {IfAbsent: mem.Ignored}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, opts)
				holder := w.machine()
				k, err := holder.Exclusive(t.Context(), "prune")
				mustLock(t, k, err)
				for range 3 {
					m := w.machine()
					var puts int
					m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
						if r.Op == "put" && r.Key == k.l.keys.exclusive() && !(r.Opts.IfAbsent && m.conditions.absent.holds()) {
							puts++
						}
						return nil
					})
					other, err := m.Exclusive(t.Context(), "prune")
					mustHeld(t, other, err)
					if puts > 0 {
						t.Errorf("%d puts of lock.exclusive while another holds it", puts)
					}
					if name == "ignored" && m.conditions.absent.holds() {
						t.Error("a condition that is ignored counts as proven")
					}
				}
				time.Sleep(2 * DefaultTTL)
				if !alive(k) {
					t.Errorf("lost by being asked for: %v", k.Lost())
				}
				k.Release(t.Context())
			})
		})
	}
}

// TestProveAbsentUnanswered: a missing answer proves nothing, and costs no lock.
func TestProveAbsentUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{IfAbsent: mem.Claimed})
		m := w.machine()
		m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" && r.Opts.IfAbsent && r.Key != m.keys.exclusive() {
				return errors.New("reset")
			}
			return nil
		})
		k, err := m.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		if !m.conditions.absent.open() {
			t.Error("no answer was taken for one")
		}
		k.Release(t.Context())
	})
}

// TestBreakBetweenLookAndPut: if the backend keeps versions, a lock that is broken between the
// look and the put of its renewal is lost, and stays deleted.
func TestBreakBetweenLookAndPut(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		for _, what := range []string{"flag", "exclusive"} {
			if mode == Shared && what == "exclusive" {
				continue
			}
			t.Run(mode.String()+" "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, mem.Options{IfAbsent: mem.Lacked, IfMatch: mem.Lacked, Versions: true})
					m := w.machine()
					k, err := m.acquire(t.Context(), mode, "x")
					mustLock(t, k, err)
					key := k.Key()
					if what == "exclusive" {
						key = m.keys.exclusive()
					}
					m.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
						if r.Op == "put" && r.Key == key && r.Opts.Replaces != "" {
							return w.mem.Delete(ctx, key)
						}
						return nil
					})
					time.Sleep(31 * time.Second)
					m.hooks.Before(nil)
					if lost := k.Lost(); lost == nil || !lost.Definite || lost.Key != key {
						t.Errorf("lost: %v", lost)
					}
					if _, _, err := w.mem.Get(t.Context(), key, maxBody); !errors.Is(err, store.ErrNotFound) {
						t.Errorf("the broken object is back: %v", err)
					}
					k.Release(t.Context())
				})
			})
		}
	}
}

// TestProofRevivesNoBrokenLock: the proof that the store heeds If-Match doesn't put a broken lock back
// after the right ETag was refused.
func TestProofRevivesNoBrokenLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{IfAbsent: mem.Claimed, IfMatch: mem.Claimed})
		a, b := w.machine(), w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		var other *Lock
		a.hooks.Before(func(ctx context.Context, r hookstore.Request) error {
			if r.Op == "put" && r.Opts.IfMatch != "" && r.Opts.IfMatch != wrongETag && other == nil {
				w.mem.Delete(ctx, k.Key()) // break-lock
				other, err = b.Exclusive(context.Background(), "prune")
				if err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		time.Sleep(100 * time.Second)
		if other != nil && alive(other) && alive(k) {
			t.Error("both in: the proof of If-Match put back a broken flag")
		}
		if other != nil {
			other.Release(t.Context())
		}
		k.Release(t.Context())
	})
}
