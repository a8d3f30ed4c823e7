package replock

import (
	"context"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// underway counts the puts of a try that aren't answered yet. A put must not come after the deletes
// of the withdrawal, so the withdrawal waits for them.
type underway struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // closed when the last put has ended; nil until close is called
}

// begin reports whether a put can be sent. After close it can't.
func (u *underway) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.n++
	}
	return !u.closed
}

func (u *underway) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 && u.closed {
		close(u.idle)
	}
}

// close prevents further puts, and waits at most the given time until the puts that were sent have
// ended.
func (u *underway) close(c clock.Clock, most time.Duration) {
	u.mu.Lock()
	if !u.closed {
		u.closed, u.idle = true, make(chan struct{})
		if u.n == 0 {
			close(u.idle)
		}
	}
	u.mu.Unlock()
	select {
	case <-u.idle:
	case <-c.After(most):
	}
}

// send returns one put of the try, for repeat and once. When ctx ends the put continues until its
// timeout. A request that is cancelled can be applied all the same, at an unknown time.
func (l *Locker) send(t *try, key string, opts store.PutOptions) func(context.Context) (store.Object, error) {
	return func(ctx context.Context) (store.Object, error) {
		if !t.underway.begin() {
			return store.Object{}, context.Canceled
		}
		defer t.underway.end()
		if end, ok := ctx.Deadline(); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), end)
			defer cancel()
		}
		began := l.opts.Clock.Elapsed()
		o, err := l.store.Put(ctx, key, t.body.encode(), opts)
		if err == nil {
			t.trips.put.note(l.opts.Clock.Elapsed() - began)
		}
		return o, err
	}
}
