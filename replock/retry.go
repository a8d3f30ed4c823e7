package replock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/retry"
	"github.com/repolock/repolock/store"
)

// repeat sends a request until it is answered, refused for good, or the budget is used up. The
// request must be one that can be applied twice. timeout bounds each send. If it is longer than
// usual, it extends the budget by the difference.
func repeat[T any](ctx context.Context, l *Locker, timeout time.Duration, what string, send func(context.Context) (T, error)) (T, error) {
	p := retry.Policy{
		Clock: l.opts.Clock, Budget: l.times.Budget + timeout - l.times.Timeout, Timeout: timeout,
		Permanent: store.Permanent, Jitter: l.jitter,
		Failed: func(err error, left time.Duration) { l.tell(Event{Kind: EventRetrying, Err: err, Left: left}) },
	}
	return retry.Do(ctx, p, once(ctx, what, send))
}

// once returns a function that sends a request, and gives up after its timeout and retry.LastWords.
// After ctx has ended it sends nothing.
func once[T any](ctx context.Context, what string, send func(context.Context) (T, error)) func(timeout time.Duration) (T, error) {
	return func(timeout time.Duration) (T, error) {
		v, _, err := retry.Once(ctx, timeout, send)
		return v, named(ctx, what, timeout, err)
	}
}

// named returns the error of a request, which says what had no answer.
func named(ctx context.Context, what string, timeout time.Duration, err error) error {
	unanswered := func(why error) error {
		if _, named := errors.AsType[*store.Error](why); !named {
			why = fault.While(what, why)
		}
		return fault.With(why, func(e *fault.Error) { e.Within = timeout })
	}
	switch ended := ctx.Err(); {
	case errors.Is(err, retry.ErrSilent):
		return store.Unreachable(unanswered(context.DeadlineExceeded))
	case ended == nil && errors.Is(err, context.DeadlineExceeded):
		return unanswered(err)
	case ended != nil && errors.Is(err, ended) && !errors.Is(err, context.Cause(ctx)):
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}
