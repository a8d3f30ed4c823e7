package replock

import (
	"context"
	"time"

	"github.com/repolock/repolock/store"
)

// maxAsk bounds one request of a held lock whose ttl is long: a connection that
// hangs for this long answers no more.
const maxAsk = 30 * time.Second

// timeout of one request: a third of the time before the deadline, and of that in
// which three failures fit, so that after a connection that hangs there is time
// for others; but never so short that a store which answers as it did when the
// lock was acquired is cut off.
func (k *Lock) timeout() time.Duration {
	left := k.Deadline() - k.l.opts.Clock.Elapsed()
	return max(min(left/3, k.l.schedule.Failure, maxAsk), 2*k.t.trips.slowest(), time.Second)
}

// ask sends one request of a held lock, once.
func ask[T any](ctx context.Context, k *Lock, what string, send func(context.Context) (T, error)) (T, error) {
	return once(ctx, k.timeout(), what, send)
}

// write puts once. None is sent any more when Release has begun: it must not come
// after the deletes.
func (k *Lock) write(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if k.releasing.Load() {
		return store.Object{}, ErrReleased
	}
	return ask(ctx, k, "put "+key, func(ctx context.Context) (store.Object, error) {
		return k.l.store.Put(ctx, key, body, opts)
	})
}
