package doctor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/internal/retry"
	"github.com/repolock/repolock/store"
)

// budget bounds all sends of a request, and timeout each of them, because a person must learn within 15 s
// that a store can't be reached.
const (
	budget  = 11 * time.Second
	timeout = 10 * time.Second
)

// maxBody exceeds all bodies that doctor writes.
const maxBody = 1 << 10

// writer returns the handle for all writes and deletions. A handle on a server that keeps versions can remove only
// the versions that it wrote.
func (x *exam) writer() store.Store { return x.stores[0] }

// reader returns one of the handles.
func (x *exam) reader(n int) store.Store { return x.stores[n%len(x.stores)] }

// put stores an object without a condition.
func (x *exam) put(ctx context.Context, key, body string) (store.Object, error) {
	return retry.Do(ctx, x.policy(), func(within time.Duration) (store.Object, error) {
		return x.send(ctx, within, key, body, store.PutOptions{})
	})
}

// putOnce sends exactly one request. If the store applied it and the answer got lost, its own condition
// would refuse a second request.
func (x *exam) putOnce(ctx context.Context, key, body string, opts store.PutOptions) error {
	_, err := x.send(ctx, timeout, key, body, opts)
	return err
}

func (x *exam) send(ctx context.Context, within time.Duration, key, body string, opts store.PutOptions) (store.Object, error) {
	kind := "put"
	switch {
	case opts.IfAbsent:
		kind = "put if-none-match"
	case opts.IfMatch != "":
		kind = "put if-match"
	}
	x.countPut(key, 1)
	o, err := once(ctx, x, within, kind, key, func(ctx context.Context) (store.Object, error) {
		return x.writer().Put(ctx, key, []byte(body), opts)
	})
	if err != nil && store.Permanent(err) {
		x.countPut(key, -1) // it wrote nothing
	}
	return o, err
}

func (x *exam) countPut(key string, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.puts[key] += n
}

// content is an object with its body.
type content struct {
	body   string
	object store.Object
}

func (x *exam) get(ctx context.Context, n int, key string) (content, error) {
	return repeat(ctx, x, "get", key, func(ctx context.Context) (content, error) {
		body, object, err := x.reader(n).Get(ctx, key, maxBody)
		return content{string(body), object}, err
	})
}

// page returns one page of a listing.
func (x *exam) page(ctx context.Context, n int, prefix, cursor string) (store.Page, error) {
	return retry.Do(ctx, x.policy(), func(within time.Duration) (store.Page, error) {
		sent := x.opts.Clock.Now()
		page, err := once(ctx, x, within, "list", prefix, func(ctx context.Context) (store.Page, error) {
			return store.Finite(x.reader(n)).List(ctx, prefix, cursor)
		})
		if err == nil && !page.Now.IsZero() {
			r := reading{sent, x.opts.Clock.Now(), page.Now}
			x.mu.Lock()
			defer x.mu.Unlock()
			x.readings = append(x.readings, r)
		}
		return page, err
	})
}

// listAll returns the objects of all pages.
func (x *exam) listAll(ctx context.Context, n int, prefix string) (objects []store.Object, err error) {
	for cursor := ""; ; {
		page, err := x.page(ctx, n, prefix, cursor)
		if err != nil {
			return nil, err
		}
		objects = append(objects, page.Objects...)
		if cursor = page.Next; cursor == "" {
			return objects, nil
		}
	}
}

func (x *exam) remove(ctx context.Context, s store.Store, key string) error {
	_, err := repeat(ctx, x, "delete", key, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.Delete(ctx, key) })
	return err
}

// policy repeats a request until the store answers or refuses it, or the budget is used up. The request must be
// harmless if the store applies it twice.
func (x *exam) policy() retry.Policy {
	return retry.Policy{Clock: x.opts.Clock, Budget: budget, Timeout: timeout, Permanent: store.Permanent, Failed: x.opts.Failed}
}

func repeat[T any](ctx context.Context, x *exam, kind, key string, send func(context.Context) (T, error)) (T, error) {
	return retry.Do(ctx, x.policy(), func(within time.Duration) (T, error) { return once(ctx, x, within, kind, key, send) })
}

// once sends a request, and records the latency of the answer. It gives the request up if the answer is late, even if
// the store ignores its context.
func once[T any](ctx context.Context, x *exam, within time.Duration, kind, key string, send func(context.Context) (T, error)) (T, error) {
	var took time.Duration // valid only if send has returned
	v, late, err := retry.Once(ctx, within, func(ctx context.Context) (T, error) {
		start := x.opts.Clock.Elapsed()
		v, err := send(ctx)
		took = x.opts.Clock.Elapsed() - start
		return v, err
	})
	switch {
	case ctx.Err() != nil: // the examination was interrupted: the answer doesn't matter
		return v, context.Cause(ctx)
	case late && err != nil:
		why := context.DeadlineExceeded
		if e, ok := errors.AsType[*store.Error](err); ok {
			why = e.Err // the store's own reason
		}
		op, _, _ := strings.Cut(kind, " ")
		return v, &store.Error{Op: op, Key: key, Err: &fault.Error{Within: within, Err: why, Class: fault.Late}}
	case err == nil || errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrNotFound): // these are answers
		x.mu.Lock()
		defer x.mu.Unlock()
		x.took[kind] = append(x.took[kind], took)
	}
	return v, err
}

// workers is the number of concurrent requests.
const workers = 8

// inParallel calls f with 0 to n-1, up to workers at a time, and waits for all calls. It returns the first error, which
// ends the context of the other calls and prevents further ones.
func inParallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	parallel.Each(workers, n, func(i int) {
		if ctx.Err() != nil {
			return
		}
		if err := f(ctx, i); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}
