package replock

import (
	"context"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// underway are the puts of a try that the store hasn't answered. What they write
// must not come after the deletes of the withdrawal, so that waits for them.
type underway struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // closed when the last put has ended; nil before close
}

// begin reports whether a put may be sent: not after close.
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

// close keeps further puts from being sent, and waits until those that were sent
// have ended, for no longer than the patience.
func (u *underway) close(c clock.Clock, patience time.Duration) {
	u.mu.Lock()
	if !u.closed {
		u.closed, u.idle = true, make(chan struct{})
		if u.n == 0 {
			close(u.idle)
		}
	}
	idle := u.idle
	u.mu.Unlock()
	select {
	case <-idle:
		return
	default:
	}
	select {
	case <-idle:
	case <-c.After(patience):
	}
}

// send returns one put of the try, as repeat and once want it. It goes on when
// ctx ends, until its time is over: a request that is dropped may be applied all
// the same, and nobody would know when.
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
