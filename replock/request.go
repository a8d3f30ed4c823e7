package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/internal/retry"
	"github.com/repolock/repolock/store"
)

// atOnce is the number of parallel requests.
const atOnce = 16

// each calls f for every item and its index, up to atOnce at a time, and waits for all calls.
func each[T any](items []T, f func(int, T)) {
	parallel.Each(atOnce, len(items), func(i int) { f(i, items[i]) })
}

// nothing is the result type of requests that have none.
type nothing = struct{}

// list returns one page of a listing. It adds an empty folder in place of lock.exclusive, which no
// key shows, as the first object.
func (l *Locker) list(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := repeat(ctx, l, l.times.Timeout, "list "+prefix, func(ctx context.Context) (store.Page, error) { return l.store.List(ctx, prefix, cursor) })
	if err == nil {
		l.reached.Store(true)
	}
	for _, folder := range page.Folders {
		if l.keys.kind(folder) == kindOdd {
			page.Objects = slices.Insert(page.Objects, 0, store.Object{Key: folder, Size: -1})
		}
	}
	return page, err
}

// exists returns an error if the repository doesn't exist. It sends a request only before the first
// put, and only if a put might create the repository.
func (l *Locker) exists(ctx context.Context) error {
	if !l.store.Properties().PutCreates || l.reached.Load() {
		return nil
	}
	_, err := l.list(ctx, l.keys.all(), "")
	return err
}

// find returns the object of a key from a listing, or nil.
func (l *Locker) find(ctx context.Context, key string) (*store.Object, error) {
	page, err := repeat(ctx, l, l.times.Timeout, "list "+key, func(ctx context.Context) (store.Page, error) { return l.listed(ctx, key) })
	seen, _ := inPage(page, key)
	return seen, err
}

// listed returns the page of a listing that shows the key, if any does. It sends each request once.
// It is one request, unless a page is empty and isn't the last.
func (l *Locker) listed(ctx context.Context, key string) (store.Page, error) {
	for cursor := ""; ; {
		page, err := l.store.List(ctx, key, cursor)
		if err != nil || len(page.Objects) > 0 || page.Next == "" {
			return page, err
		}
		cursor = page.Next
	}
}

// content is a body with its object.
type content struct {
	raw    []byte
	object store.Object
}

func (l *Locker) get(ctx context.Context, key string) (content, error) {
	return repeat(ctx, l, l.times.Timeout, "get "+key, l.fetch(key))
}

// fetch returns the get of a key, for repeat and once.
func (l *Locker) fetch(key string) func(context.Context) (content, error) {
	return func(ctx context.Context) (content, error) {
		raw, object, err := l.store.Get(ctx, key, maxBody)
		return content{raw, object}, err
	}
}

func (l *Locker) put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	return repeat(ctx, l, l.times.Timeout, "put "+key, func(ctx context.Context) (store.Object, error) { return l.store.Put(ctx, key, body, opts) })
}

// delete returns the delete of a key, for repeat and once.
func (l *Locker) delete(key string) func(context.Context) (nothing, error) {
	return func(ctx context.Context) (nothing, error) { return nothing{}, l.store.Delete(ctx, key) }
}

// remove deletes a key. If that isn't allowed it puts an empty body, which means "released". If
// neither is allowed the error names both.
func (l *Locker) remove(ctx context.Context, key string) error {
	return l.removeIf(ctx, key, l.times.Timeout, func(_ context.Context, send func(etag string) error) error { return send("") })
}

// removeIf is remove with a condition, and a timeout for each request. condition receives the
// function that sends the request. It can skip the call, or pass an ETag for If-Match.
func (l *Locker) removeIf(ctx context.Context, key string, each time.Duration, condition func(context.Context, func(etag string) error) error) error {
	request := func(what string, send func(ctx context.Context, key, etag string) error) error {
		_, err := repeat(ctx, l, each, what+" "+key, func(ctx context.Context) (nothing, error) {
			return nothing{}, condition(ctx, func(etag string) error { return send(ctx, key, etag) })
		})
		return err
	}
	err := request("delete", l.deleteSeen)
	if !errors.Is(err, store.ErrPermission) {
		return err
	}
	if perr := request("put", l.emptySeen); perr != nil {
		return fmt.Errorf("no permission to delete %q, nor to overwrite it: %w", key, fault.Join(err, perr))
	}
	return nil
}

// deleteSeen deletes a key, and emptySeen empties it, if its object has this ETag. An empty ETag
// matches any object.
func (l *Locker) deleteSeen(ctx context.Context, key, etag string) error {
	if etag != "" {
		return store.DeleteIfMatch(ctx, l.store, key, etag)
	}
	return l.store.Delete(ctx, key)
}

func (l *Locker) emptySeen(ctx context.Context, key, etag string) error {
	_, err := l.store.Put(ctx, key, nil, store.PutOptions{IfMatch: etag})
	return err
}

// repeat sends a request until it is answered, refused for good, or the budget is used up. The store
// must be able to apply the request twice without harm. timeout bounds each send. If it is longer
// than usual, the budget is longer by the difference.
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

// named adds the name and the timeout of a request to its error, if it had no answer.
func named(ctx context.Context, what string, timeout time.Duration, err error) error {
	unanswered := func(why error) error {
		if _, named := errors.AsType[*store.Error](why); !named {
			why = fault.While(what, why)
		}
		return fault.With(why, func(e *fault.Error) { e.Within, e.Class = timeout, fault.Late })
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

// underway counts the puts of an attempt that aren't answered yet. A put must not come after the
// deletes of the withdrawal, so the withdrawal waits for them.
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

// send returns one put of the attempt, for repeat and once. When ctx ends the put continues until its
// timeout, because a cancelled request can still be applied, at an unknown time.
func (l *Locker) send(t *attempt, key string, opts store.PutOptions) func(context.Context) (store.Object, error) {
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

// trips are the durations of the fastest requests of an acquire. A single slow request shows
// nothing.
type trips struct{ put, list trip }

// trip is a duration, or 0 if it is unknown.
type trip struct{ quickest atomic.Int64 }

func (t *trip) note(d time.Duration) {
	for {
		was := t.quickest.Load()
		if was != 0 && was <= int64(d) || t.quickest.CompareAndSwap(was, int64(max(d, 1))) {
			return
		}
	}
}

func (t *trip) get() time.Duration { return time.Duration(t.quickest.Load()) }

// slowest returns the longer of the two durations.
func (t *trips) slowest() time.Duration { return max(t.put.get(), t.list.get()) }

// attempts is the number of refreshes that must fit between the first one and the deadline.
const attempts = 3

// holdable returns ErrSlow if the store is so slow that three refreshes don't fit before the
// deadline, because such a lock can't be held. It returns errLate if only this attempt took too long
// for that.
func (l *Locker) holdable(t *attempt) error {
	refresh := t.trips.put.get()
	if !l.conditions.matchKept {
		refresh += t.trips.list.get() // a look precedes the put
	}
	window := l.times.Deadline - l.times.Interval
	if attempts*refresh <= window {
		if l.opts.Clock.Elapsed()+attempts*refresh >= t.deadline {
			return errLate
		}
		return nil
	}
	longer := time.Duration(float64(l.opts.TTL) * float64(attempts*refresh) / float64(window))
	longer = longer.Truncate(time.Second) + time.Second
	return fmt.Errorf("%w: a refresh takes %v, and with a ttl of %v, %d of them must fit into %v; use a ttl of %v",
		ErrSlow, refresh.Round(time.Millisecond), l.opts.TTL, attempts, window.Round(time.Millisecond), longer)
}
