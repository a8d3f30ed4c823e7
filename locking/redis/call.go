package redis

import (
	"context"
	"errors"
)

// errClosed is returned by the methods of a closed Backend.
var errClosed = errors.New("the backend is closed")

// call is a request that goes on if its caller gives it up: go-redis looks at deadlines alone.
type call struct {
	done chan struct{}
	err  error // once done is closed
}

// start runs f in a goroutine, which ends with the context's deadline, after stepLimit, or with
// Close.
func (b *Backend) start(ctx context.Context, f func(context.Context) error) *call {
	c := &call{done: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		c.err = errClosed
		close(c.done)
		return c
	}
	b.calls.Add(1)
	go func() {
		defer b.calls.Done()
		defer close(c.done)
		c.err = f(ctx)
	}()
	return c
}

// wait returns the error of the call, or that of the context if it ends first.
func (c *call) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	select {
	case <-c.done:
		return c.err
	default:
		return ctx.Err()
	}
}

// do runs f and returns when f has returned or the context has ended. In the latter case f runs
// on: its results must not be read.
func (b *Backend) do(ctx context.Context, f func(context.Context) error) error {
	return b.start(ctx, f).wait(ctx)
}
