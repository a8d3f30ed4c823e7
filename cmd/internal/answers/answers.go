// Package answers counts a store's answers. If a store has answered nothing, a session can run its command without a
// lock (--if-unreachable).
package answers

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// answerer is implemented by stores whose methods can send several requests. Such a method can fail without an answer
// although the store has answered an earlier request. Then the error must not be store.ErrUnreachable. Answered
// doesn't count an answer by which a server or a gateway reports that it is down.
type answerer interface {
	Answered() bool
}

// Store is a decorator that counts a store's answers. Every result counts, even a refusal, but neither
// store.ErrUnreachable nor context.Canceled.
type Store struct {
	store.Store
	n atomic.Int64
}

var (
	_ store.ConditionalDeleter = (*Store)(nil)
	_ store.BatchDeleter       = (*Store)(nil)
	_ store.Watcher            = (*Store)(nil)
	_ store.Surveyor           = (*Store)(nil)
)

// Of returns a Store around s, with no answers so far.
func Of(s store.Store) *Store { return &Store{Store: s} }

// Answered reports whether the store has answered any request, even one of several in a method.
func (s *Store) Answered() bool {
	a, ok := s.Store.(answerer)
	return s.n.Load() > 0 || ok && a.Answered()
}

func (s *Store) note(err error) {
	if !errors.Is(err, store.ErrUnreachable) && !errors.Is(err, context.Canceled) {
		s.n.Add(1)
	}
}

// Put counts the store's answer.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	o, err := s.Store.Put(ctx, key, body, opts)
	s.note(err)
	return o, err
}

// Get counts the store's answer.
func (s *Store) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	body, o, err := s.Store.Get(ctx, key, limit)
	s.note(err)
	return body, o, err
}

// List counts the store's answer.
func (s *Store) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	s.note(err)
	return page, err
}

// Delete counts the store's answer.
func (s *Store) Delete(ctx context.Context, key string) error {
	err := s.Store.Delete(ctx, key)
	s.note(err)
	return err
}

// DeleteIfMatch counts the store's answer.
func (s *Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	err := store.DeleteIfMatch(ctx, s.Store, key, etag)
	s.note(err)
	return err
}

// DeleteAll counts the store's answer.
func (s *Store) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	deleted, err := store.DeleteAll(ctx, s.Store, keys)
	if !errors.Is(err, store.ErrBatchUnsent) {
		s.note(err)
	}
	return deleted, err
}

// Watch calls the store's method. The method sends no request, so Watch counts no answer.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan struct{}, error) {
	return store.Watch(ctx, s.Store, prefix)
}

// HasOther reports whether there is an object whose key doesn't begin with prefix. It returns
// errors.ErrUnsupported if the store finds that out only by List.
func (s *Store) HasOther(ctx context.Context, prefix string) (bool, error) {
	v, ok := s.Store.(store.Surveyor)
	if !ok {
		return false, errors.ErrUnsupported
	}
	found, err := v.HasOther(ctx, prefix)
	if !errors.Is(err, errors.ErrUnsupported) {
		s.note(err)
	}
	return found, err
}
