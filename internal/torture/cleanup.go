package torture

import (
	"context"
	"sync"
	"time"

	"github.com/repolock/repolock/store"
)

const (
	// cleanUpTimeout bounds cleaning up.
	cleanUpTimeout = time.Minute
	// rounds bounds how often cleanUp lists and deletes: a request of a killed process can
	// arrive in between.
	rounds = 3
	// workers bounds the concurrent requests.
	workers = 8
)

// cleanUp deletes all objects with the prefix, even after the context has ended, and returns
// the keys that remain.
func cleanUp(ctx context.Context, s store.Store, prefix string) (left []string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
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
		failed = deleteAll(ctx, s, left)
	}
}

func deleteAll(ctx context.Context, s store.Store, keys []string) error {
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
