// Package hookstore puts hooks around a store's requests: to count them, to hold one
// back, to lose its answer. It serves tests.
package hookstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// Request is one request to the store.
type Request struct {
	Op   string // "put", "get", "list", "delete", "delete all"
	Key  string // or prefix; of "delete all" the first of Keys
	Keys []string
	Body []byte
	Opts store.PutOptions
	// N counts the requests from 1.
	N int64
}

// Store is a store whose requests pass through hooks.
type Store struct {
	store.Store
	// Watched passes Watch on. Without it the store is no store.Watcher.
	Watched bool

	before atomic.Pointer[Before]
	after  atomic.Pointer[After]

	n  atomic.Int64
	mu sync.Mutex
	by map[string]int
}

// Before is called before a request is applied; an error is answered in its
// place, and nothing applied.
type Before func(ctx context.Context, r Request) error

// After is called once a request was applied. Its result is the answer: an error in place of
// nil is a lost answer.
type After func(ctx context.Context, r Request, err error) error

// Before sets the hook; nil removes it. It can be called at any time.
func (s *Store) Before(f Before) { s.before.Store(&f) }

// After sets the hook; nil removes it. It can be called at any time.
func (s *Store) After(f After) { s.after.Store(&f) }

// Count returns how many requests were sent, in all and by operation, and
// starts anew.
func (s *Store) Count() (total int, by map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.by {
		total += n
	}
	by, s.by = s.by, nil
	return total, by
}

func (s *Store) do(ctx context.Context, r Request, send func() error) error {
	r.N = s.n.Add(1)
	s.mu.Lock()
	if s.by == nil {
		s.by = map[string]int{}
	}
	s.by[r.Op]++
	s.mu.Unlock()
	if f := s.before.Load(); f != nil && *f != nil {
		if err := (*f)(ctx, r); err != nil {
			return err
		}
	}
	err := send()
	if f := s.after.Load(); f != nil && *f != nil {
		return (*f)(ctx, r, err)
	}
	return err
}

// Put passes on.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (o store.Object, err error) {
	err = s.do(ctx, Request{Op: "put", Key: key, Body: body, Opts: opts}, func() (err error) {
		o, err = s.Store.Put(ctx, key, body, opts)
		return err
	})
	return o, err
}

// Get passes on.
func (s *Store) Get(ctx context.Context, key string, limit int64) (raw []byte, o store.Object, err error) {
	err = s.do(ctx, Request{Op: "get", Key: key}, func() (err error) {
		raw, o, err = s.Store.Get(ctx, key, limit)
		return err
	})
	return raw, o, err
}

// List passes on.
func (s *Store) List(ctx context.Context, prefix, cursor string) (p store.Page, err error) {
	err = s.do(ctx, Request{Op: "list", Key: prefix}, func() (err error) {
		p, err = s.Store.List(ctx, prefix, cursor)
		return err
	})
	return p, err
}

// Delete passes on.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.do(ctx, Request{Op: "delete", Key: key}, func() error { return s.Store.Delete(ctx, key) })
}

// DeleteIfMatch passes on, as a "delete" whose Opts have the condition.
func (s *Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	return s.do(ctx, Request{Op: "delete", Key: key, Opts: store.PutOptions{IfMatch: etag}}, func() error {
		return store.DeleteIfMatch(ctx, s.Store, key, etag)
	})
}

// DeleteAll passes on, as a "delete all".
func (s *Store) DeleteAll(ctx context.Context, keys []string) (deleted []bool, err error) {
	err = s.do(ctx, Request{Op: "delete all", Key: keys[0], Keys: keys}, func() (err error) {
		deleted, err = store.DeleteAll(ctx, s.Store, keys)
		return err
	})
	if err != nil {
		return make([]bool, len(keys)), err
	}
	return deleted, nil
}

// Watch passes on, if the store is Watched. It is no request.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan struct{}, error) {
	if !s.Watched {
		return nil, errors.ErrUnsupported
	}
	return store.Watch(ctx, s.Store, prefix)
}
