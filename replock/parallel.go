package replock

import "sync"

// parallel is how many requests are under way at once.
const parallel = 16

// each calls f for every item and its index, up to 16 at a time, and waits for all.
func each[T any](items []T, f func(int, T)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(parallel, len(items)) {
		wg.Go(func() {
			for i := range next {
				f(i, items[i])
			}
		})
	}
	for i := range items {
		next <- i
	}
	close(next)
	wg.Wait()
}
