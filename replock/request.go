package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// A request that fails is repeated for as long as this, and one that isn't
// answered is given up after that, both shorter where the ttl is short: an
// acquire has to be over well before the lease that it begins, and a person to
// be told within 15 s that a store can't be reached. After one that hangs there is
// time for another.
const (
	maxBudget  = 11 * time.Second
	maxTimeout = 8 * time.Second
)

// haste is how long a withdrawal may take if the store has just failed, or the
// caller wants to go: what is left then expires.
const haste = 3 * time.Second

func (l *Locker) budget() time.Duration  { return min(maxBudget, l.opts.TTL/4) }
func (l *Locker) timeout() time.Duration { return min(maxTimeout, l.opts.TTL*2/15) }

// firstPause is the time before the first repetition; it doubles with each.
const firstPause = 200 * time.Millisecond

// repeat sends a request until it is answered, or refused for good, or the
// budget is used up. The request must be one that may be applied twice.
func repeat[T any](ctx context.Context, l *Locker, what string, send func(context.Context) (T, error)) (T, error) {
	return repeatEach(ctx, l, l.timeout(), what, send)
}

// repeatEach is repeat where each try has so much time, and all of them as much more.
func repeatEach[T any](ctx context.Context, l *Locker, each time.Duration, what string, send func(context.Context) (T, error)) (T, error) {
	end := l.opts.Clock.Elapsed() + l.budget() + each - l.timeout()
	for pause := firstPause; ; pause *= 2 {
		timeout := min(each, end-l.opts.Clock.Elapsed())
		v, err := once(ctx, max(timeout, time.Second), what, send) // after a suspend nothing is left
		if err == nil || store.Permanent(err) || ctx.Err() != nil {
			return v, err
		}
		wait := l.jitter(pause)
		if l.opts.Clock.Elapsed()+wait >= end {
			return v, err
		}
		if clock.Sleep(ctx, l.opts.Clock, wait) != nil {
			return v, err
		}
	}
}

// lastWords is how long a store may take, once a request's context has ended, to say in
// its own words why it didn't answer: it alone knows what it was waiting for.
const lastWords = 250 * time.Millisecond

// once sends a request and gives it up after timeout and lastWords, even if the store
// doesn't heed its context: a system call on a network file system can't be cancelled.
// After the context's end it sends nothing.
func once[T any](ctx context.Context, timeout time.Duration, what string, send func(context.Context) (T, error)) (T, error) {
	var zero T
	if ctx.Err() != nil {
		return zero, context.Cause(ctx)
	}
	rctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type answer struct {
		v   T
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		v, err := send(rctx)
		answered <- answer{v, err}
	}()
	unanswered := func(why error) error {
		if e := (*store.Error)(nil); !errors.As(why, &e) { // which names the request
			why = fmt.Errorf("%s: %w", what, why)
		}
		return fmt.Errorf("no answer within %v: %w", timeout.Round(time.Millisecond), why)
	}
	inTime := func(a answer) (T, error) {
		switch ended := ctx.Err(); {
		case ended == nil && errors.Is(a.err, context.DeadlineExceeded):
			a.err = unanswered(a.err)
		case ended != nil && errors.Is(a.err, ended) && !errors.Is(a.err, context.Cause(ctx)):
			a.err = fmt.Errorf("%w: %w", context.Cause(ctx), a.err)
		}
		return a.v, a.err
	}
	select {
	case a := <-answered:
		return inTime(a)
	case <-rctx.Done():
		moment, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		select {
		case a := <-answered:
			return inTime(a)
		case <-moment.Done():
		}
		if err := ctx.Err(); err != nil {
			return zero, context.Cause(ctx)
		}
		return zero, store.Unreachable(unanswered(context.DeadlineExceeded)) // the store said nothing at all
	}
}

// nothing is the value of requests that have none.
type nothing = struct{}

// list is one page of a listing. An empty folder in the place of lock.exclusive, in which
// no key shows it, is the first of its objects.
func (l *Locker) list(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := repeat(ctx, l, "list "+prefix, func(ctx context.Context) (store.Page, error) { return l.store.List(ctx, prefix, cursor) })
	for _, folder := range page.Folders {
		if l.keys.kind(folder) == kindOdd {
			page.Objects = slices.Insert(page.Objects, 0, store.Object{Key: folder, Size: -1})
		}
	}
	return page, err
}

// find is the listing of one key: its object, or none.
func (l *Locker) find(ctx context.Context, key string) (*store.Object, error) {
	return repeat(ctx, l, "list "+key, func(ctx context.Context) (*store.Object, error) { return l.listed(ctx, key) })
}

// listed is find in one try. It is one request, unless a page is empty and says
// that there are more.
func (l *Locker) listed(ctx context.Context, key string) (*store.Object, error) {
	for cursor := ""; ; {
		page, err := l.store.List(ctx, key, cursor)
		switch {
		case err != nil:
			return nil, err
		case len(page.Objects) > 0 && page.Objects[0].Key == key:
			return &page.Objects[0], nil
		case len(page.Objects) > 0 || page.Next == "":
			return nil, nil
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
	return repeat(ctx, l, "get "+key, func(ctx context.Context) (content, error) {
		raw, object, err := l.store.Get(ctx, key, maxBody)
		return content{raw, object}, err
	})
}

func (l *Locker) put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	return repeat(ctx, l, "put "+key, func(ctx context.Context) (store.Object, error) { return l.store.Put(ctx, key, body, opts) })
}

// remove deletes a key, or, if that isn't allowed, puts an empty body in its
// place, which says "released". If neither is allowed the error names both.
func (l *Locker) remove(ctx context.Context, key string) error {
	return l.removeBy(ctx, key, l.timeout(),
		func(ctx context.Context) error { return l.store.Delete(ctx, key) },
		func(ctx context.Context) error {
			_, err := l.store.Put(ctx, key, nil, store.PutOptions{})
			return err
		})
}

// removeBy is remove by these requests, each of which has so much time.
func (l *Locker) removeBy(ctx context.Context, key string, each time.Duration, remove, empty func(context.Context) error) error {
	request := func(what string, send func(context.Context) error) error {
		_, err := repeatEach(ctx, l, each, what+" "+key, func(ctx context.Context) (nothing, error) { return nothing{}, send(ctx) })
		return err
	}
	err := request("delete", remove)
	if !errors.Is(err, store.ErrPermission) {
		return err
	}
	if perr := request("put", empty); perr != nil {
		return fmt.Errorf("no permission to delete %q, nor to overwrite it: %w", key, join(err, perr))
	}
	return nil
}

// parallel is how many requests are under way at once.
const parallel = 16

// each calls f for every item and its index, up to 16 at a time, and waits for all.
func each[T any](items []T, f func(int, T)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(parallel, len(items)) {
		wg.Go(func() {
			for i := range next {
				f(i, items[i])
			}
		})
	}
	for i := range items {
		next <- i
	}
	close(next)
	wg.Wait()
}
