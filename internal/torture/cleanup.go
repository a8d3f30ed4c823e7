package torture

import (
	"context"
	"sync"
	"time"

	"github.com/repolock/repolock/store"
)

const (
	// haste is how long cleaning up may take.
	haste = time.Minute
	// rounds is how often what is listed is deleted: a request of a process that was
	// killed may arrive in between.
	rounds = 3
	// workers is how many requests are under way at once.
	workers = 8
)

// cleanUp deletes all that has the prefix, the context being over or not, and gives
// what is left of it.
func cleanUp(ctx context.Context, s store.Store, prefix string) (left []string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), haste)
	defer cancel()
	var failed error
	for n := 0; ; n++ {
		left, err := list(ctx, s, prefix)
		if err != nil || len(left) == 0 {
			return nil, err
		}
		if n == rounds {
			return left, failed
		}
		failed = erase(ctx, s, left)
	}
}

func erase(ctx context.Context, s store.Store, keys []string) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
		next  = make(chan string)
	)
	for range workers {
		wg.Go(func() {
			for key := range next {
				if err := s.Delete(ctx, key); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	for _, key := range keys {
		next <- key
	}
	close(next)
	wg.Wait()
	return first
}
