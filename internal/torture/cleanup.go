package torture

import (
	"cmp"
	"context"
	"time"

	"github.com/repolock/repolock/internal/parallel"
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
func cleanUp(ctx context.Context, o Objects, prefix string) (left []string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	for n := 0; ; n++ {
		keys, failed := o.Keys(ctx, prefix)
		if failed != nil || len(keys) == 0 {
			return nil, failed
		}
		if n == rounds {
			return keys, err
		}
		errs := make([]error, len(keys))
		parallel.Each(workers, len(keys), func(i int) { errs[i] = o.Delete(ctx, keys[i]) })
		err = cmp.Or(errs...)
	}
}
