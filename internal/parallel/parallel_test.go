package parallel

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestEach: Each calls f once with each number, as many at a time as the limit allows, and returns
// after the last call.
func TestEach(t *testing.T) {
	for _, c := range []struct {
		limit, n int
		takes    time.Duration
	}{{3, 7, 3 * time.Second}, {8, 3, time.Second}, {1, 2, 2 * time.Second}, {4, 0, 0}} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			running, most := 0, 0
			calls := make([]int, c.n)
			began := time.Now()
			Each(c.limit, c.n, func(i int) {
				mu.Lock()
				calls[i]++
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
			})
			for i, n := range calls {
				if n != 1 {
					t.Errorf("%d of %d: called %d times", i, c.n, n)
				}
			}
			if took := time.Since(began); took != c.takes || most != min(c.limit, c.n) {
				t.Errorf("%d at a time of %d: %d ran at once, for %v, want %v", c.limit, c.n, most, took, c.takes)
			}
		})
	}
}
