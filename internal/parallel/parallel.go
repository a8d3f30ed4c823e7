// Package parallel runs a bounded number of functions at the same time.
package parallel

import (
	"sync"
	"sync/atomic"
)

// Each calls f with each number from 0 to n-1, at most limit calls at a time. It waits for all calls. A goroutine makes
// one call after another, so that its stack grows only once.
func Each(limit, n int, f func(i int)) {
	var wg sync.WaitGroup
	var begun atomic.Int64
	for range min(limit, n) {
		wg.Go(func() {
			for i := int(begun.Add(1)) - 1; i < n; i = int(begun.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}
