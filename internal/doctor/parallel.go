package doctor

import (
	"context"

	"github.com/repolock/repolock/internal/parallel"
)

// workers is the number of requests that are under way at once.
const workers = 8

// inParallel calls f with 0 to n-1, up to workers at a time, and waits for all. The first error
// ends the context of the others, keeps f from being called again, and is returned.
func inParallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	parallel.Each(workers, n, func(i int) {
		if ctx.Err() != nil {
			return
		}
		if err := f(ctx, i); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}
