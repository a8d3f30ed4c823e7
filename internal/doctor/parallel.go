package doctor

import (
	"context"
	"sync"
)

// workers is how many requests are under way at once.
const workers = 8

// parallel calls f with 0 to n-1, up to workers at a time, and waits for all. The
// first error keeps those from being called that weren't yet, ends the context
// of the others, and is returned.
func parallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(workers, n) {
		wg.Go(func() {
			for i := range next {
				if ctx.Err() != nil {
					continue
				}
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}
