package replock

import (
	"slices"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store/memory"
)

// TestEndedOnce: an event with Ended follows each EventAcquired and EventResumed once, however the lock ends, so a
// gauge of held locks ends at 0.
func TestEndedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		ends func(t *testing.T, w *world, m *machine, k *Lock)
		want []EventKind // of all events with Ended
	}{
		"released": {func(t *testing.T, w *world, m *machine, k *Lock) { mustRelease(t, k) }, []EventKind{EventReleased}},
		"released twice": {func(t *testing.T, w *world, m *machine, k *Lock) {
			mustRelease(t, k)
			mustRelease(t, k)
		}, []EventKind{EventReleased}},
		"lost, and released": {func(t *testing.T, w *world, m *machine, k *Lock) {
			m.outlives(t, k)
			mustRelease(t, k)
		}, []EventKind{EventLost}},
		"lost, resumed, and released": {func(t *testing.T, w *world, m *machine, k *Lock) {
			m.outlives(t, k)
			mustResume(t, k)
			mustRelease(t, k)
		}, []EventKind{EventLost, EventReleased}},
		"lost, not resumed, and released": {func(t *testing.T, w *world, m *machine, k *Lock) {
			m.outlives(t, k)
			w.breakAll()
			isAll(t, k.Resume(t.Context()), ErrLost)
			mustRelease(t, k)
		}, []EventKind{EventLost}},
		"not released": {func(t *testing.T, w *world, m *machine, k *Lock) {
			m.hooks.Before(outage)
			_ = k.Release(t.Context())
		}, []EventKind{EventReleaseFailed}},
	} {
		bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
			m, k := w.holder(t, mode)
			time.Sleep(DefaultTTL)
			c.ends(t, w, m, k)
			gauge, ended := 0, []EventKind(nil)
			for _, e := range m.seen() {
				switch {
				case e.Kind == EventAcquired, e.Kind == EventResumed:
					gauge++
				case e.Ended:
					gauge--
					ended = append(ended, e.Kind)
				}
			}
			equal(t, name+": gauge", gauge, 0)
			assert.That(t, slices.Equal(ended, c.want), "%s: %v ended it, want %v", name, ended, c.want)
		})
	}
}
