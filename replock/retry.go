package replock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// A request that fails is repeated for as long as this, and one that isn't
// answered is given up after that, both shorter where the ttl is short: an
// acquire has to be over well before the lease that it begins, and a person to
// be told within 15 s that a store can't be reached. After one that hangs there is
// time for another.
const (
	maxBudget  = 11 * time.Second
	maxTimeout = 8 * time.Second
)

func (l *Locker) budget() time.Duration { return min(maxBudget, l.opts.TTL/4) }

func (l *Locker) timeout() time.Duration { return min(maxTimeout, l.opts.TTL*2/15) }

// firstPause is the time before the first repetition; it doubles with each.
const firstPause = 200 * time.Millisecond

// repeat sends a request until it is answered, or refused for good, or the
// budget is used up. The request must be one that may be applied twice.
func repeat[T any](ctx context.Context, l *Locker, what string, send func(context.Context) (T, error)) (T, error) {
	return repeatEach(ctx, l, l.timeout(), what, send)
}

// repeatEach is repeat where each try has so much time, and all of them as much more.
func repeatEach[T any](ctx context.Context, l *Locker, each time.Duration, what string, send func(context.Context) (T, error)) (T, error) {
	end := l.opts.Clock.Elapsed() + l.budget() + each - l.timeout()
	for pause := firstPause; ; pause *= 2 {
		timeout := min(each, end-l.opts.Clock.Elapsed())
		v, err := once(ctx, max(timeout, time.Second), what, send) // after a suspend nothing is left
		if err == nil || store.Permanent(err) || ctx.Err() != nil {
			return v, err
		}
		wait := l.jitter(pause)
		if l.opts.Clock.Elapsed()+wait >= end {
			return v, err
		}
		if clock.Sleep(ctx, l.opts.Clock, wait) != nil {
			return v, err
		}
	}
}

// lastWords is how long a store may take, once a request's context has ended, to say in
// its own words why it didn't answer: it alone knows what it was waiting for.
const lastWords = 250 * time.Millisecond

// once sends a request and gives it up after timeout and lastWords, even if the store
// doesn't heed its context: a system call on a network file system can't be cancelled.
// After the context's end it sends nothing.
func once[T any](ctx context.Context, timeout time.Duration, what string, send func(context.Context) (T, error)) (T, error) {
	var zero T
	if ctx.Err() != nil {
		return zero, context.Cause(ctx)
	}
	rctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type answer struct {
		v   T
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		v, err := send(rctx)
		answered <- answer{v, err}
	}()
	unanswered := func(why error) error {
		if e := (*store.Error)(nil); !errors.As(why, &e) { // which names the request
			why = fmt.Errorf("%s: %w", what, why)
		}
		return fmt.Errorf("no answer within %v: %w", timeout.Round(time.Millisecond), why)
	}
	inTime := func(a answer) (T, error) {
		switch ended := ctx.Err(); {
		case ended == nil && errors.Is(a.err, context.DeadlineExceeded):
			a.err = unanswered(a.err)
		case ended != nil && errors.Is(a.err, ended) && !errors.Is(a.err, context.Cause(ctx)):
			a.err = fmt.Errorf("%w: %w", context.Cause(ctx), a.err)
		}
		return a.v, a.err
	}
	select {
	case a := <-answered:
		return inTime(a)
	case <-rctx.Done():
		moment, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		select {
		case a := <-answered:
			return inTime(a)
		case <-moment.Done():
		}
		if err := ctx.Err(); err != nil {
			return zero, context.Cause(ctx)
		}
		return zero, store.Unreachable(unanswered(context.DeadlineExceeded)) // the store said nothing at all
	}
}
