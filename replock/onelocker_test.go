package replock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/store/mem"
)

// TestLocksOfOneLocker: locks that one Locker has taken know nothing of each other. They exclude
// each other as those of two processes do; one is released while the other is refreshed; one that
// was lost is resumed while the other is held.
func TestLocksOfOneLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		m := w.machine()
		first, err := m.Shared(t.Context(), "backup")
		mustLock(t, first, err)
		second, err := m.Shared(t.Context(), "backup")
		mustLock(t, second, err)
		k, err := m.Exclusive(t.Context(), "prune")
		mustHeld(t, k, err)

		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * DefaultTTL)
		if !alive(second) {
			t.Fatalf("lost with the release of the other: %v", second.Lost())
		}
		k, err = m.Exclusive(t.Context(), "prune")
		mustHeld(t, k, err)

		m.lose(t, second)
		m.hooks.Before(nil)
		third, err := m.Shared(t.Context(), "backup")
		mustLock(t, third, err)
		resumed, err := second.Resume(t.Context())
		mustLock(t, resumed, err)
		if !alive(third) {
			t.Errorf("lost with the resumption of the other: %v", third.Lost())
		}
		for _, k := range []*Lock{resumed, third} {
			if err := k.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		w.empty()
	})
}
