package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/store"
)

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
	return l.removeBy(ctx, key, l.times.Timeout,
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
