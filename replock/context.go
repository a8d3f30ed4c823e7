package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Parent has the lock's context end with parent, and have its values. It ends the
// acquire, too. The lock itself is held until Release. Without Parent, the lock's context
// has the values of the acquire's, and lives on when that ends.
func Parent(parent context.Context) AcquireOption {
	return func(q *queue) { q.parent = parent }
}

// bound returns the acquire's context, which ends with the parent of the lock's, too.
func (q *queue) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	quit := func() { cancel(context.Cause(q.parent)) }
	if q.parent.Err() != nil {
		quit()
	}
	stop := context.AfterFunc(q.parent, quit)
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// ended is the error of an acquire whose context has ended. If others were seen in its
// way it names them.
func (q *queue) ended(ctx context.Context, t *try, f found) error {
	why := whyEnded(ctx)
	if f.live = slices.Concat(f.live, f.doubtful); len(f.live) > 0 {
		return q.heldUntil(t, f, why)
	}
	return fmt.Errorf("acquiring the %s lock: %w", q.mode, why)
}

// whyEnded returns why a context has ended: its cause, and what its Err is.
func whyEnded(ctx context.Context) error {
	cause, err := context.Cause(ctx), ctx.Err()
	if errors.Is(cause, err) {
		return cause
	}
	return endedError{cause, err}
}

// endedError has the text of the cause.
type endedError struct{ cause, err error }

func (e endedError) Error() string   { return e.cause.Error() }
func (e endedError) Unwrap() []error { return []error{e.cause, e.err} }
