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

// renewer replaces the objects of one lock by their next versions, and checks that they are still
// stored. A held lock does this at each refresh, a resumed one when it takes lock.exclusive over.
// The methods keep their results in the object that they get.
type renewer struct {
	*lease.Term // nil before the lock is held
	l           *Locker
	t           *try                      // the try that has the objects
	now         atomic.Pointer[storeTime] // the best lower bound of the store's clock
	seq         atomic.Uint64             // seq of the last body
	dated       atomic.Int64              // mod time of the flag in Unix nanoseconds, by date; 0 if unknown

	mu    sync.Mutex // guards probe and, until the refresher has ended, the objects of a held lock's try
	probe []*entry   // flags of putMissing that might be left in the store
}

// begin sets the Locker and the try.
func (r *renewer) begin(l *Locker, t *try) {
	r.l, r.t = l, t
	r.now.Store(&t.st)
	r.date(t.dated.at)
}

// date notes a mod time of the flag, unless the previous version was stale by then. In that case
// this version can be a refresh that was applied late, after another holder had passed and removed
// the flag.
func (r *renewer) date(mod time.Time) {
	if !mod.IsZero() && (r.dated.Load() == 0 || !r.reapable(mod)) {
		r.dated.Store(max(r.dated.Load(), mod.UnixNano()))
	}
}

// reapable reports whether others can have seen the flag as stale before it got this mod time. It
// compares times of the store's clock, because ours don't count a hypervisor's pause. The store
// truncates them, and the margin of others allows for that.
func (r *renewer) reapable(mod time.Time) bool {
	last := r.dated.Load()
	return last == 0 || mod.UnixNano()-last > int64(r.l.opts.TTL)
}

// end returns the deadline of the lease.
func (r *renewer) end() time.Duration {
	if r.Term == nil {
		return r.t.deadline
	}
	return r.Deadline()
}

// renew replaces one of our objects. Its results are in o even if it fails. unique means that no
// other client writes the key, so that If-Match can be proven on it.
func (r *renewer) renew(ctx context.Context, o *object, unique bool) error {
	if r.l.conditions.matchKept && o.etag != "" {
		return r.replace(ctx, o)
	}
	return r.lookAndPut(ctx, o, unique)
}

// replace renews with If-Match on a backend that itself keeps it. That proves that the object was
// stored.
func (r *renewer) replace(ctx context.Context, o *object) error {
	err := r.put(ctx, o, store.PutOptions{IfMatch: o.etag})
	if errors.Is(err, store.ErrPrecondition) {
		// An earlier refresh of ours can have been applied although its answer was lost. Then the
		// object has our id, and its ETag is the next condition.
		if err := r.ours(ctx, o); err != nil {
			return err
		}
		err = r.put(ctx, o, store.PutOptions{IfMatch: o.etag})
		if errors.Is(err, store.ErrPrecondition) {
			return fmt.Errorf("%s was changed between two requests: %w", o.key, err)
		}
	}
	return err
}

// lookAndPut renews where a server only claims If-Match, or has none: it looks whether the object
// is stored, and then puts. A proven If-Match is used as well, and never replaces the look. Some
// servers write an object that was deleted, whatever the condition (minio/minio#21526), and would
// put a broken lock back.
func (r *renewer) lookAndPut(ctx context.Context, o *object, unique bool) error {
	began := r.l.opts.Clock.Elapsed()
	if err := r.confirm(ctx, o); err != nil {
		return err
	}
	match := &r.l.conditions.match
	proves := unique && match.open() && o.etag != "" && r.refuses(ctx, o)
	// If this process was stopped since the look, its put could restore an object that was broken
	// meanwhile.
	if took := r.l.opts.Clock.Elapsed() - began; took > max(r.l.times.Failure, 3*r.t.trips.slowest()+time.Second) {
		return fmt.Errorf("%s was not refreshed, because looking at it took %v", o.key, took.Round(time.Second))
	}
	opts := store.PutOptions{Replaces: o.etag}
	if (match.holds() || proves) && o.etag != "" {
		opts = store.PutOptions{IfMatch: o.etag}
	}
	err := r.put(ctx, o, opts)
	if proves {
		match.learnFrom(err, true)
	}
	if proves && err != nil && match.fails() { // the server refuses a condition that is met
		return r.lookAndPut(ctx, o, unique)
	}
	if errors.Is(err, store.ErrPrecondition) {
		// It was deleted since the look, or an earlier put of ours was applied late.
		if err := r.confirm(ctx, o); err != nil {
			return err
		}
		return fmt.Errorf("%s was changed between two requests: %w", o.key, err)
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
			if now.known() { // the put was applied after this time, even if the answer has none
				r.date(now.when(sent))
			}
		}
	}
	return err
}

// maxAsk bounds one request of a held lock with a long ttl. A connection that has hung for this
// long won't answer any more.
const maxAsk = 30 * time.Second

// timeout returns the timeout of one request: a third of the time before the deadline, so that
// others can follow a connection that hangs. It is never so short that it cuts off a store which
// answers as slowly as it did during the acquire.
func (r *renewer) timeout() time.Duration {
	left := r.end() - r.l.opts.Clock.Elapsed()
	return max(min(left/3, r.l.times.Failure, maxAsk), 2*r.t.trips.slowest(), time.Second)
}

// ask sends one request of a held lock, once.
func ask[T any](ctx context.Context, r *renewer, what string, send func(context.Context) (T, error)) (T, error) {
	return once(ctx, what, send)(r.timeout())
}

// write puts once. It sends nothing once Release has begun, because a put must not come after the
// deletes.
func (r *renewer) write(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if r.Term != nil && r.Releasing() {
		return store.Object{}, ErrReleased
	}
	return ask(ctx, r, "put "+key, func(ctx context.Context) (store.Object, error) {
		return r.l.store.Put(ctx, key, body, opts)
	})
}
