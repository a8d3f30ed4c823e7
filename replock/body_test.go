package replock

import (
	"context"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
)

// TestBodiesAreUnique: no two bodies are the same, because an ETag can be a function of the body.
func TestBodiesAreUnique(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		a.clock.setSkew(time.Hour)
		seen := map[string]bool{}
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" {
				l, err := decode(r.Body)
				if err != nil {
					t.Error(err)
				}
				b := l.body
				b.RefreshedAt, b.ExpiresAt, b.RefreshedBoot = "", "", 0 // a clock that stands still
				if raw := string(b.encode()); seen[raw] {
					t.Errorf("the same body again: %s", raw)
				} else {
					seen[raw] = true
				}
			}
			return nil
		})
		for range 2 {
			k, err := a.Shared(t.Context(), "x")
			mustLock(t, k, err)
			time.Sleep(2 * time.Minute)
			k.Release(t.Context())
		}
	})
}

// TestStateIsAcquiringThenHeld: the body says acquiring at first, and held from the first refresh
// on.
func TestStateIsAcquiringThenHeld(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		k, err := w.machine().Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		for _, want := range []State{StateAcquiring, StateHeld} {
			for _, key := range w.keys() {
				raw, _, _ := w.mem.Get(t.Context(), key, maxBody)
				if l, err := decode(raw); err != nil || l.State != want {
					t.Errorf("%s: %q %v, want %s", key, l.State, err, want)
				}
			}
			time.Sleep(31 * time.Second)
		}
		k.Release(t.Context())
	})
}
