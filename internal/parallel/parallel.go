// Package parallel runs a bounded number of functions at the same time.
package parallel

import "sync"

// Each calls f with each number from 0 to n-1, at most limit calls at a time. It waits for all calls.
func Each(limit, n int, f func(i int)) {
	var wg sync.WaitGroup
	free := make(chan struct{}, limit)
	for i := range n {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			f(i)
		})
	}
	wg.Wait()
}
