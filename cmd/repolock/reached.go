package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// listener is a store, and whether it was ever heard: it answered a request, with a page, a
// refusal, or whatever else isn't store.ErrUnreachable. Who was heard may be asked again, so a
// command doesn't run without its lock then.
type listener struct {
	store.Store
	answered atomic.Bool
}

func (l *listener) heard() bool {
	a, ok := l.Store.(store.Answerer)
	return l.answered.Load() || ok && a.Answered()
}

func (l *listener) note(err error) {
	if !errors.Is(err, store.ErrUnreachable) && !errors.Is(err, context.Canceled) {
		l.answered.Store(true)
	}
}

func (l *listener) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	o, err := l.Store.Put(ctx, key, body, opts)
	l.note(err)
	return o, err
}

func (l *listener) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	body, o, err := l.Store.Get(ctx, key, limit)
	l.note(err)
	return body, o, err
}

func (l *listener) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := l.Store.List(ctx, prefix, cursor)
	l.note(err)
	return page, err
}

func (l *listener) Delete(ctx context.Context, key string) error {
	err := l.Store.Delete(ctx, key)
	l.note(err)
	return err
}

func (l *listener) DeleteIfMatch(ctx context.Context, key, etag string) error {
	err := store.DeleteIfMatch(ctx, l.Store, key, etag)
	l.note(err)
	return err
}
