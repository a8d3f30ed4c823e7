// Package retry sends a request again until it is answered, within a time budget.
package retry

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
)

// firstPause is the pause before the second send. Each later pause is twice as long.
const firstPause = 200 * time.Millisecond

// LastWords is how long Once waits for an answer after the context of a request has ended. Only the store's own error
// explains the delay.
const LastWords = 250 * time.Millisecond

// leastTimeout is the shortest timeout of a send. A send gets it even if a suspend has used up the budget.
const leastTimeout = time.Second

// ErrSilent is returned by Once if send doesn't return in time.
var ErrSilent = errors.New("no answer")

// Policy bounds the repetitions of a request.
type Policy struct {
	Clock clock.Clock
	// Budget bounds all sends and the pauses between them. Timeout bounds one send.
	Budget, Timeout time.Duration
	// Permanent reports whether an error is final, so that another send is useless.
	Permanent func(error) bool
	// Failed, if it isn't nil, is called before each pause. left is the longest time until Do returns.
	Failed func(err error, left time.Duration)
	// Jitter, if it isn't nil, changes a pause at random.
	Jitter func(time.Duration) time.Duration
}

// Do calls send until it succeeds, fails for good, or the budget is used up. It returns the result of the last call. If
// that had no answer, the error also has the last answer before it, so that it isn't one of a store that can't be
// reached. The store must be able to apply the request twice without harm.
func Do[T any](ctx context.Context, p Policy, send func(timeout time.Duration) (T, error)) (T, error) {
	end := p.Clock.Elapsed() + p.Budget
	var answer error
	for pause := firstPause; ; pause *= 2 {
		v, err := send(max(min(p.Timeout, end-p.Clock.Elapsed()), leastTimeout))
		last := err
		if fault.Silent(err) {
			err = fault.Join(answer, err)
		} else {
			answer = err
		}
		if err == nil || p.Permanent(last) || ctx.Err() != nil {
			return v, err
		}
		wait := pause
		if p.Jitter != nil {
			wait = p.Jitter(pause)
		}
		left := end - p.Clock.Elapsed()
		if wait >= left {
			return v, err
		}
		if p.Failed != nil {
			p.Failed(last, p.atMost(ctx, left))
		}
		if clock.Sleep(ctx, p.Clock, wait) != nil {
			return v, err
		}
	}
}

// atMost returns how long Do can still take, if its budget lasts for left. The last send can begin at the end of the
// budget, and ends with the context at the latest.
func (p Policy) atMost(ctx context.Context, left time.Duration) time.Duration {
	left += leastTimeout
	if end, ok := ctx.Deadline(); ok {
		left = min(left, max(end.Sub(p.Clock.Now()), 0))
	}
	return left + LastWords
}

// Once calls send with a context that ends after timeout. It returns at most LastWords later, even if send ignores its
// context, because a system call on a network file system can't be cancelled. If ctx has already ended, Once doesn't
// call send, and returns the context's cause. late reports whether the result came after the end of the request's
// context.
func Once[T any](ctx context.Context, timeout time.Duration, send func(context.Context) (T, error)) (v T, late bool, err error) {
	if ctx.Err() != nil {
		return v, false, context.Cause(ctx)
	}
	rctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	alone, done := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer done()
	own := ownDeadline{rctx, alone}
	type answer struct {
		v   T
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		v, err := send(own)
		answered <- answer{v, err}
	}()
	select {
	case a := <-answered:
		return a.v, false, a.err
	case <-rctx.Done():
	}
	grace, over := context.WithTimeout(context.WithoutCancel(ctx), LastWords)
	defer over()
	select {
	case a := <-answered:
		return a.v, true, a.err
	case <-grace.Done():
	}
	if ctx.Err() != nil {
		return v, true, context.Cause(ctx)
	}
	return v, true, ErrSilent
}

// ownDeadline is the context of a request. Its Deadline is that of the request, although the context can end earlier with
// the caller's. A put that must not be cancelled continues until then.
type ownDeadline struct {
	context.Context
	alone context.Context // the request's, without its caller
}

func (c ownDeadline) Deadline() (time.Time, bool) { return c.alone.Deadline() }
