package replock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestDeleteMarker: a server that refuses If-None-Match for a key whose object was deleted
// locks no exclusive acquirer out, in this process or another, and the process learns it
// once.
func TestDeleteMarker(t *testing.T) {
	for name, condition := range map[string]mem.Condition{"kept": mem.Kept, "claimed": mem.Claimed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{IfAbsent: condition, IfMatch: condition, Markers: true})
				first, second := w.machine(), w.machine()
				for i, m := range []*machine{first, second, second, first} {
					var k *Lock
					trips, _, _ := m.trips(func() {
						var err error
						k, err = m.Exclusive(t.Context(), "prune")
						mustLock(t, k, err)
					})
					if _, _, err := w.mem.Get(t.Context(), m.keys.exclusive(), maxBody); err != nil {
						t.Errorf("acquire %d: lock.exclusive: %v", i, err)
					}
					if limit := 12 * time.Second; trips > limit || m == second && i == 2 && trips > 4*time.Second {
						t.Errorf("acquire %d: %v round trips", i, trips)
					}
					k.Release(t.Context())
				}
				w.empty()
			})
		})
	}
}

// TestRefusedThoughListed: a lock.exclusive that a look shows is never overwritten because
// puts are refused: the refusals can be true.
func TestRefusedThoughListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{Markers: true})
		m := w.machine()
		k, err := m.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		before, _, err := w.mem.Get(t.Context(), m.keys.exclusive(), maxBody)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			other, err := w.machine().Exclusive(t.Context(), "prune")
			mustHeld(t, other, err)
		}
		if after, _, err := w.mem.Get(t.Context(), m.keys.exclusive(), maxBody); err != nil || string(after) != string(before) {
			t.Errorf("%v, %s", err, after)
		}
		k.Release(t.Context())
	})
}

// TestRefusalsAreNamed: an acquire that ends too late because of refusals names them.
func TestRefusalsAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		m := w.machine()
		var sends sync.Map // of each request two, of which the first fails: more than 9 s
		m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			time.Sleep(3 * time.Second)
			n, _ := sends.LoadOrStore(r.Op+r.Key, new(atomic.Int32))
			if n.(*atomic.Int32).Add(1)%2 == 1 {
				return errors.New("reset")
			}
			time.Sleep(4 * time.Second)
			if r.Op == "put" && r.Opts.IfAbsent {
				return &store.Error{Op: "put", Key: r.Key, Err: store.ErrPrecondition}
			}
			return nil
		})
		k, err := m.Exclusive(t.Context(), "prune")
		if err == nil {
			k.Release(t.Context())
			t.Fatal("acquired")
		}
		if s := err.Error(); !strings.Contains(s, `"index/lock.exclusive" with If-None-Match (412)`) {
			t.Errorf("%v", err)
		}
	})
}

// TestUnfitIsNotHeld: a store that can't hold locks is no HeldError: a caller that skips a
// held lock would skip for ever.
func TestUnfitIsNotHeld(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		for _, patience := range []time.Duration{0, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				k, err := w.machine().Exclusive(t.Context(), "prune")
				mustLock(t, k, err)
				m := w.machine()
				m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
					if r.Op == "get" {
						return &store.Error{Op: "get", Key: r.Key, Err: fmt.Errorf("%w: an object without an ETag", store.ErrConfig)}
					}
					return nil
				})
				other, err := m.acquire(t.Context(), mode, "x", Wait(patience))
				if other != nil || errors.Is(err, ErrHeld) || !errors.Is(err, store.ErrConfig) {
					t.Errorf("%s, waiting for %v: %v", mode, patience, err)
				}
				k.Release(t.Context())
			})
		}
	}
}
