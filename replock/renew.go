package replock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/store"
)

// renewer replaces the objects of one lock by their next versions, and finds out whether they
// are still there. A held lock does this at each refresh, a resumed one when it takes
// lock.exclusive over. Its methods keep what they learn in the object that they are given.
type renewer struct {
	*lease.Term // nil before the lock is held
	l           *Locker
	t           *try                      // whose objects they are
	now         atomic.Pointer[storeTime] // the best lower bound of the store's clock
	seq         atomic.Uint64             // of the last body that was written
	dated       atomic.Int64              // the flag's mod time, in Unix nanoseconds, as date says; 0: unknown

	mu    sync.Mutex // guards the objects of a held lock's try until its refresher has ended, and:
	probe []*entry   // objects that putMissing can have left in the store
}

// begin has the objects of the try.
func (r *renewer) begin(l *Locker, t *try) {
	r.l, r.t = l, t
	r.now.Store(&t.st)
	r.date(t.dated.at)
}

// date notes a mod time of the flag, unless the version before was stale by then: this one can be a
// refresh that was applied late, after another holder had passed, and had removed the flag.
func (r *renewer) date(mod time.Time) {
	if !mod.IsZero() && (r.dated.Load() == 0 || !r.reapable(mod)) {
		r.dated.Store(max(r.dated.Load(), mod.UnixNano()))
	}
}

// reapable reports whether the flag can have been stale, for others, before it got this mod time.
// Those are times of the store's clock: ours don't count what a hypervisor's pause took. The store
// rounds them down: others' margin allows for that.
func (r *renewer) reapable(mod time.Time) bool {
	last := r.dated.Load()
	return last == 0 || mod.UnixNano()-last > int64(r.l.opts.TTL)
}

// end is the deadline of the lease.
func (r *renewer) end() time.Duration {
	if r.Term == nil {
		return r.t.deadline
	}
	return r.Deadline()
}

// renew replaces one of our objects, and keeps in o what it has learnt of it even if it fails.
// unique says that no other client writes the key, so that If-Match can be tried out on it.
func (r *renewer) renew(ctx context.Context, o *object, unique bool) error {
	if r.l.conditions.matchKept && o.etag != "" {
		return r.replace(ctx, o)
	}
	return r.lookAndPut(ctx, o, unique)
}

// replace renews with If-Match on a backend that itself keeps it: that proves that the object
// was stored.
func (r *renewer) replace(ctx context.Context, o *object) error {
	err := r.put(ctx, o, store.PutOptions{IfMatch: o.etag})
	if errors.Is(err, store.ErrPrecondition) {
		// An earlier refresh of ours that got no answer can have been applied: then the
		// object carries our id, and we go on from it.
		if err := r.ours(ctx, o); err != nil {
			return err
		}
		err = r.put(ctx, o, store.PutOptions{IfMatch: o.etag})
		if errors.Is(err, store.ErrPrecondition) {
			return fmt.Errorf("%s changes between two requests: %w", o.key, err)
		}
	}
	return err
}

// lookAndPut renews if the server only claims If-Match, or has none: it looks whether the object
// is stored, and puts. A proven If-Match comes on top and never replaces the look: some servers
// write an object that was deleted, whatever the condition (minio/minio#21526), and would put a
// broken lock back.
func (r *renewer) lookAndPut(ctx context.Context, o *object, unique bool) error {
	began := r.l.opts.Clock.Elapsed()
	if err := r.confirm(ctx, o); err != nil {
		return err
	}
	match := &r.l.conditions.match
	proves := unique && match.open() && o.etag != "" && r.refuses(ctx, o)
	// A process that was stopped since it looked would put back what was broken
	// meanwhile.
	if took := r.l.opts.Clock.Elapsed() - began; took > max(r.l.times.Failure, 3*r.t.trips.slowest()+time.Second) {
		return fmt.Errorf("%s: looking at it took %v", o.key, took.Round(time.Second))
	}
	opts := store.PutOptions{Replaces: o.etag}
	if (match.holds() || proves) && o.etag != "" {
		opts = store.PutOptions{IfMatch: o.etag}
	}
	err := r.put(ctx, o, opts)
	if proves {
		match.learnFrom(err, true)
	}
	if proves && err != nil && match.fails() { // the server refuses what it must take
		return r.lookAndPut(ctx, o, unique)
	}
	if errors.Is(err, store.ErrPrecondition) {
		// It was deleted in between, or a put of ours that got no answer came late.
		if err := r.confirm(ctx, o); err != nil {
			return err
		}
		return fmt.Errorf("%s changes between two requests: %w", o.key, err)
	}
	return err
}

// put sends the next version of an object.
func (r *renewer) put(ctx context.Context, o *object, opts store.PutOptions) error {
	b := r.t.body
	b.Seq, b.State = r.seq.Add(1), StateHeld
	now, sent := *r.now.Load(), r.l.opts.Clock.Elapsed()
	r.l.stamp(&b, now, sent)
	put, err := r.write(ctx, o.key, b.encode(), opts)
	if err == nil {
		o.etag, o.sent = put.ETag, sent
		if o.key == r.t.flag.key {
			r.date(put.ModTime)
			if now.known() { // the answer needn't tell: it got at least this one
				r.date(now.when(sent))
			}
		}
	}
	return err
}

// maxAsk bounds one request of a held lock with a long ttl: a connection that hangs for this
// long answers no more.
const maxAsk = 30 * time.Second

// timeout returns the timeout of one request: a third of the time before the deadline, so that
// after a connection that hangs there is time for others, but never so short that it cuts off a
// store which answers as it did during the acquire.
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
	if r.Term != nil && r.Releasing() {
		return store.Object{}, ErrReleased
	}
	return ask(ctx, r, "put "+key, func(ctx context.Context) (store.Object, error) {
		return r.l.store.Put(ctx, key, body, opts)
	})
}
