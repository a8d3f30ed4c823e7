package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// A request that fails is repeated for as long as budget, and one that isn't
// answered is given up after timeout: a person is to be told within 15 s that a
// store can't be reached.
const (
	budget     = 11 * time.Second
	timeout    = 10 * time.Second
	firstPause = 200 * time.Millisecond
	// lastWords is how long a store may take, once a request was given up, to say why it
	// didn't answer.
	lastWords = 250 * time.Millisecond
)

// maxBody is more than any body that is written here.
const maxBody = 1 << 10

// writer is the handle that everything is written and deleted through: one that
// keeps versions may know only its own, and only those can it remove.
func (x *exam) writer() store.Store { return x.stores[0] }

// reader is one of the handles.
func (x *exam) reader(n int) store.Store { return x.stores[n%len(x.stores)] }

// put stores without a condition.
func (x *exam) put(ctx context.Context, key, body string) (store.Object, error) {
	return repeat(ctx, x, func(within time.Duration) (store.Object, error) {
		return x.send(ctx, within, key, body, store.PutOptions{})
	})
}

// putOnce is exactly one request: repeating one that was carried out and not
// answered would be refused for its own condition.
func (x *exam) putOnce(ctx context.Context, key, body string, opts store.PutOptions) (store.Object, error) {
	return x.send(ctx, timeout, key, body, opts)
}

func (x *exam) send(ctx context.Context, within time.Duration, key, body string, opts store.PutOptions) (store.Object, error) {
	kind := "put"
	switch {
	case opts.IfAbsent:
		kind = "put if-none-match"
	case opts.IfMatch != "":
		kind = "put if-match"
	}
	x.written.sending(key)
	o, err := once(ctx, x, within, kind, key, func(ctx context.Context) (store.Object, error) {
		return x.writer().Put(ctx, key, []byte(body), opts)
	})
	if err != nil && store.Permanent(err) {
		x.written.refused(key)
	}
	return o, err
}

// content is an object with its body.
type content struct {
	body   string
	object store.Object
}

func (x *exam) get(ctx context.Context, n int, key string) (content, error) {
	return repeat(ctx, x, func(within time.Duration) (content, error) {
		return once(ctx, x, within, "get", key, func(ctx context.Context) (content, error) {
			body, object, err := x.reader(n).Get(ctx, key, maxBody)
			return content{string(body), object}, err
		})
	})
}

// list is one page.
func (x *exam) list(ctx context.Context, n int, prefix, cursor string) (store.Page, error) {
	return repeat(ctx, x, func(within time.Duration) (store.Page, error) {
		sent := x.clock.Now()
		page, err := once(ctx, x, within, "list", prefix, func(ctx context.Context) (store.Page, error) {
			return store.Finite(x.reader(n)).List(ctx, prefix, cursor)
		})
		if err == nil && !page.Now.IsZero() {
			x.readings.note(reading{sent, x.clock.Now(), page.Now})
		}
		return page, err
	})
}

// listAll is all pages.
func (x *exam) listAll(ctx context.Context, n int, prefix string) (objects []store.Object, err error) {
	for cursor := ""; ; {
		page, err := x.list(ctx, n, prefix, cursor)
		if err != nil {
			return nil, err
		}
		objects = append(objects, page.Objects...)
		if cursor = page.Next; cursor == "" {
			return objects, nil
		}
	}
}

func (x *exam) remove(ctx context.Context, key string) error {
	return x.removeBy(ctx, x.writer(), key)
}

func (x *exam) removeBy(ctx context.Context, s store.Store, key string) error {
	_, err := repeat(ctx, x, func(within time.Duration) (struct{}, error) {
		return once(ctx, x, within, "delete", key, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.Delete(ctx, key)
		})
	})
	return err
}

// repeat sends a request until it is answered, or refused for good, or the
// budget is used up. It must be one that may be carried out twice.
func repeat[T any](ctx context.Context, x *exam, send func(within time.Duration) (T, error)) (T, error) {
	end := x.clock.Elapsed() + budget
	for pause := firstPause; ; pause *= 2 {
		left := max(end-x.clock.Elapsed(), time.Second) // after a suspend nothing is left
		v, err := send(min(timeout, left))
		if err == nil || store.Permanent(err) || ctx.Err() != nil || x.clock.Elapsed()+pause >= end {
			return v, err
		}
		if clock.Sleep(ctx, x.clock, pause) != nil {
			return v, err
		}
	}
}

// once sends a request, notes how long its answer took, and gives it up if it
// isn't answered within a time, even if the store doesn't heed its context.
func once[T any](ctx context.Context, x *exam, within time.Duration, kind, key string, send func(context.Context) (T, error)) (T, error) {
	var zero T
	if ctx.Err() != nil {
		return zero, context.Cause(ctx)
	}
	rctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	type answer struct {
		v    T
		err  error
		took time.Duration
	}
	answers := make(chan answer, 1)
	go func() {
		start := x.clock.Elapsed()
		v, err := send(rctx)
		answers <- answer{v, err, x.clock.Elapsed() - start}
	}()
	select {
	case a := <-answers:
		if ctx.Err() != nil && a.err != nil {
			return zero, context.Cause(ctx)
		}
		if answered(a.err) {
			x.latencies.note(kind, a.took)
		}
		return a.v, a.err
	case <-rctx.Done():
		if ctx.Err() != nil {
			return zero, context.Cause(ctx)
		}
		op, _, _ := strings.Cut(kind, " ")
		why := context.DeadlineExceeded
		select { // what the store was waiting for, which it alone knows
		case a := <-answers:
			if e := (*store.Error)(nil); errors.As(a.err, &e) {
				why = e.Err
			}
		case <-x.clock.After(lastWords):
		}
		return zero, &store.Error{Op: op, Key: key, Err: fmt.Errorf("no answer within %v: %w", within, why)}
	}
}

// answered reports whether the store has done what it was asked, or said that a
// condition wasn't met.
func answered(err error) bool {
	return err == nil || errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrNotFound)
}
