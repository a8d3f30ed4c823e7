package replock

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store/mem"
)

// TestOneWinsOnABusyMachine: one of two acquirers gets in although some requests take hundreds of times as long as others, and up to six seconds.
func TestOneWinsOnABusyMachine(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		for name, opts := range map[string]mem.Options{"kept": {}, "claimed": claiming, "none": lacking} {
			for _, slow := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
				none, n := 0, 200
				for i := range n {
					bubble(t, opts, func(t *testing.T, w *world) {
						rng := rand.New(rand.NewPCG(uint64(i), uint64(slow)))
						var mu sync.Mutex // of rng
						busy := func() time.Duration {
							mu.Lock()
							defer mu.Unlock()
							if rng.IntN(2) == 0 {
								return 10 * time.Millisecond
							}
							return time.Duration(rng.Int64N(int64(slow)))
						}
						a, b := w.machine(), w.machine()
						a.paces(busy)
						b.paces(busy)
						if winners(t, heldOrSlow, contender{a, Exclusive, 0}, contender{b, mode, time.Duration(i-n/3) * 20 * time.Millisecond}) == 0 {
							none++
						}
					})
				}
				assert.That(t, none == 0,
					"exclusive and %s, preconditions %s, up to %v before and after a request: no client won in %d of %d", mode, name, slow, none, n)
			}
		}
	}
}
