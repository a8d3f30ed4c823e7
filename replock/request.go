package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/internal/retry"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// atOnce is the number of parallel requests.
const atOnce = 16

// each calls f for every item and its index, up to atOnce at a time, and waits for all calls.
func each[T any](items []T, f func(int, T)) {
	parallel.Each(atOnce, len(items), func(i int) { f(i, items[i]) })
}

// nothing is the type of the result of a request that returns only an error.
type nothing = struct{}

// list returns one page of a listing. If there is a folder in the place of lock.exclusive, the page begins with an
// object for it. No key shows an empty folder.
func (l *Locker) list(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := repeat(ctx, l, l.times.Timeout, "list "+prefix, func(ctx context.Context) (store.Page, error) { return l.page(ctx, prefix, cursor) })
	for _, folder := range page.Folders {
		if l.keys.Kind(folder) == wire.KindOdd {
			page.Objects = slices.Insert(page.Objects, 0, store.Object{Key: folder, Size: -1})
		}
	}
	return page, err
}

// page requests one page of a listing. A folder of another program that this user can't read is an object of the page.
func (l *Locker) page(ctx context.Context, prefix, cursor string) (store.Page, error) {
	return l.store.List(store.Skipping(ctx, l.keys.Skips), prefix, cursor)
}

// Skipping returns a context for a program that lists the locks under a prefix without a Locker. They skip a folder
// that this user isn't permitted to read, if its name is another program's. Without it, they return
// store.ErrPermission.
func Skipping(ctx context.Context, prefix string) context.Context {
	return store.Skipping(ctx, wire.Keys{Prefix: prefix}.Skips)
}

// find returns an object as a listing shows it, or nil if the key isn't listed.
func (l *Locker) find(ctx context.Context, key string) (*store.Object, error) {
	page, err := repeat(ctx, l, l.times.Timeout, "list "+key, func(ctx context.Context) (store.Page, error) { return l.listed(ctx, key) })
	seen, _ := verdict.InPage(page, key)
	return seen, err
}

// listed returns the page of a listing that shows the key, if any page does. It sends each request once.
func (l *Locker) listed(ctx context.Context, key string) (store.Page, error) {
	return store.PageOf(store.Skipping(ctx, l.keys.Skips), l.store, key)
}

// content is a body with its object.
type content struct {
	raw    []byte
	object store.Object
}

func (l *Locker) get(ctx context.Context, key string) (content, error) {
	return repeat(ctx, l, l.times.Timeout, "get "+key, l.fetch(key))
}

// fetch returns a function that gets a key, for repeat and once.
func (l *Locker) fetch(key string) func(context.Context) (content, error) {
	return func(ctx context.Context) (content, error) {
		raw, object, err := l.store.Get(ctx, key, wire.MaxBody)
		return content{raw, object}, err
	}
}

func (l *Locker) put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	return repeat(ctx, l, l.times.Timeout, "put "+key, func(ctx context.Context) (store.Object, error) { return l.store.Put(ctx, key, body, opts) })
}

// delete returns a function that deletes a key, for repeat and once.
func (l *Locker) delete(key string) func(context.Context) (nothing, error) {
	return func(ctx context.Context) (nothing, error) { return nothing{}, l.store.Delete(ctx, key) }
}

// ending is a request that deletes or empties an object, if the object has this ETag. An empty ETag matches any object.
type ending struct {
	what string
	send func(ctx context.Context, key, etag string) error
}

// remove deletes a key. If the store doesn't allow that, it puts an empty body, which means "released". If the store
// allows neither, the error names both.
func (l *Locker) remove(ctx context.Context, key string) error {
	return l.deleteOrEmpty(key, func(by ending) error {
		_, err := repeat(ctx, l, l.times.Timeout, by.what+" "+key, func(ctx context.Context) (nothing, error) {
			return nothing{}, by.send(ctx, key, "")
		})
		return err
	})
}

// deleteOrEmpty calls end to delete a key. If the store doesn't allow that, it calls end again to put an empty body.
func (l *Locker) deleteOrEmpty(key string, end func(ending) error) error {
	err := end(ending{"delete", l.deleteSeen})
	if !errors.Is(err, store.ErrPermission) || errors.Is(err, store.ErrCredentials) {
		return err
	}
	if perr := end(ending{"put", l.emptySeen}); perr != nil {
		return fmt.Errorf("no permission to delete %q, nor to overwrite it: %w", key, fault.Join(err, perr))
	}
	return nil
}

// deleteSeen deletes an object if it has this ETag. An empty ETag matches any object. emptySeen empties it instead.
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

// repeat sends a request until it is answered or refused for good, or the budget is used up. The store must be able to
// apply the request twice without harm. timeout bounds each send. If it is longer than usual, the budget is longer by
// the difference.
func repeat[T any](ctx context.Context, l *Locker, timeout time.Duration, what string, send func(context.Context) (T, error)) (T, error) {
	p := retry.Policy{
		Clock: l.opts.Clock, Budget: l.times.Budget + timeout - l.times.Timeout, Timeout: timeout,
		Permanent: l.final, Jitter: l.jitter,
		Failed: func(err error, left time.Duration) { l.tell(Event{Kind: EventRetrying, Err: err, Left: left}) },
	}
	v, err := retry.Do(ctx, p, once(ctx, what, send))
	if err == nil {
		l.reached.Store(true)
	}
	return v, err
}

// final reports whether the same request would fail again for the same reason. If the store has accepted the
// credentials before, another process might be about to replace them, so that the next request has valid ones.
func (l *Locker) final(err error) bool {
	return store.Permanent(err) && !(errors.Is(err, store.ErrCredentials) && l.reached.Load())
}

// once returns a function that sends a request once. It gives up after its timeout and retry.LastWords. After ctx has
// ended it sends nothing.
func once[T any](ctx context.Context, what string, send func(context.Context) (T, error)) func(timeout time.Duration) (T, error) {
	return func(timeout time.Duration) (T, error) {
		v, _, err := retry.Once(ctx, timeout, send)
		return v, named(ctx, what, timeout, err)
	}
}

// named adds the request's name and timeout to the error of a request that had no answer.
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
