package replock

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/store/mem"
)

// TestRefreshesComeApart: locks that were acquired at one time aren't refreshed at one time,
// and none is refreshed later than at half of its ttl.
func TestRefreshesComeApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		start := time.Now()
		var machines []*machine
		for range 64 {
			m := w.machine()
			m.earlier = m.early
			k, err := m.Shared(t.Context(), "backup")
			mustLock(t, k, err)
			defer k.Release(t.Context())
			machines = append(machines, m)
		}
		time.Sleep(31 * time.Second)
		var first []time.Duration
		for _, m := range machines {
			m.Flush(t.Context())
			m.mu.Lock()
			i := slices.IndexFunc(m.seen, func(e Event) bool { return e.Kind == EventRefreshed })
			if i < 0 {
				t.Fatal("not refreshed after half of its ttl")
			}
			first = append(first, m.seen[i].Time.Sub(start))
			m.mu.Unlock()
		}
		slices.Sort(first)
		if first[0] < 27*time.Second || first[63] > 30*time.Second || first[63]-first[0] < time.Second {
			t.Errorf("first refreshed from %v to %v", first[0], first[63])
		}
		if len(slices.Compact(first)) < 32 {
			t.Errorf("refreshed at the same time: %v", first)
		}
	})
}
