package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/repolock/repolock/internal/fault"
)

// Parent makes parent the parent of the lock's context, in place of the acquire's context. The
// lock's context has parent's values and ends with it. The end of parent also ends the acquire. The
// lock itself is held until Release.
func Parent(parent context.Context) AcquireOption {
	return func(q *queue) { q.parent = parent }
}

// ended returns the error of an acquire whose context has ended. It names the conflicting locks of
// the last look.
func (q *queue) ended(ctx context.Context, t *try, f findings) error {
	why := whyEnded(ctx)
	if f.live = slices.Concat(f.live, f.doubtful); len(f.live) > 0 {
		return q.held(t, f, why)
	}
	return fault.While(fmt.Sprintf("acquiring the %s lock", q.mode), why)
}

// whyEnded returns the cause of a context's end. The error also matches ctx.Err.
func whyEnded(ctx context.Context) error {
	cause, err := context.Cause(ctx), ctx.Err()
	if errors.Is(cause, err) {
		return cause
	}
	return fault.As(err, cause)
}
