// Package parallel bounds work that is done at the same time.
package parallel

import "sync"

// Each calls f with 0 to n-1, up to limit calls at a time, and waits for all of them.
func Each(limit, n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(limit, n) {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
