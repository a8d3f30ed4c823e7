package replock

import (
	"context"
	"time"

	"github.com/repolock/repolock/store"
)

// maxAsk bounds one request of a held lock with a long ttl: a connection that hangs for this
// long answers no more.
const maxAsk = 30 * time.Second

// timeout returns the timeout of one request: a third of the time before the deadline, and of
// the time in which three failures fit, so that after a connection that hangs there is time for
// others; but never so short that it cuts off a store which answers as it did during the
// acquire.
func (r *renewer) timeout() time.Duration {
	left := r.end() - r.l.opts.Clock.Elapsed()
	return max(min(left/3, r.l.times.Failure, maxAsk), 2*r.t.trips.slowest(), time.Second)
}

// ask sends one request of a held lock, once.
func ask[T any](ctx context.Context, r *renewer, what string, send func(context.Context) (T, error)) (T, error) {
	return once(ctx, r.timeout(), what, send)
}

// write puts once. It sends nothing once Release has begun: a put must not come after the
// deletes.
func (r *renewer) write(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if r.releasing.Load() {
		return store.Object{}, ErrReleased
	}
	return ask(ctx, r, "put "+key, func(ctx context.Context) (store.Object, error) {
		return r.l.store.Put(ctx, key, body, opts)
	})
}
