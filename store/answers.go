package store

import (
	"context"
	"errors"
	"sync/atomic"
)

// Answers is a decorator that counts a store's answers. Every result counts, also a refusal, except
// [ErrUnreachable] and context.Canceled. It has all methods of a store except the one of [Describer].
// Only Store must be set.
type Answers struct {
	Store
	n atomic.Int64
}

var (
	_ Answerer           = (*Answers)(nil)
	_ ConditionalDeleter = (*Answers)(nil)
	_ BatchDeleter       = (*Answers)(nil)
	_ Watcher            = (*Answers)(nil)
	_ Surveyor           = (*Answers)(nil)
)

// Answered reports whether the store has answered any request, even one of several in a method.
func (s *Answers) Answered() bool { return !s.silentSince(0) }

// Listen returns a function that reports whether the store has been silent since. An answer to another
// caller counts too, because it shows that the store can be reached.
func (s *Answers) Listen() (silent func() bool) {
	before := s.n.Load()
	return func() bool { return s.silentSince(before) }
}

func (s *Answers) silentSince(before int64) bool {
	a, ok := s.Store.(Answerer)
	return s.n.Load() == before && !(ok && a.Answered())
}

func (s *Answers) note(err error) {
	if !errors.Is(err, ErrUnreachable) && !errors.Is(err, context.Canceled) {
		s.n.Add(1)
	}
}

// Put counts the store's answer.
func (s *Answers) Put(ctx context.Context, key string, body []byte, opts PutOptions) (Object, error) {
	o, err := s.Store.Put(ctx, key, body, opts)
	s.note(err)
	return o, err
}

// Get counts the store's answer.
func (s *Answers) Get(ctx context.Context, key string, limit int64) ([]byte, Object, error) {
	body, o, err := s.Store.Get(ctx, key, limit)
	s.note(err)
	return body, o, err
}

// List counts the store's answer.
func (s *Answers) List(ctx context.Context, prefix, cursor string) (Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	s.note(err)
	return page, err
}

// Delete counts the store's answer.
func (s *Answers) Delete(ctx context.Context, key string) error {
	err := s.Store.Delete(ctx, key)
	s.note(err)
	return err
}

// DeleteIfMatch counts the store's answer.
func (s *Answers) DeleteIfMatch(ctx context.Context, key, etag string) error {
	err := DeleteIfMatch(ctx, s.Store, key, etag)
	s.note(err)
	return err
}

// DeleteAll counts the store's answer.
func (s *Answers) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	deleted, err := DeleteAll(ctx, s.Store, keys)
	if !errors.Is(err, ErrBatchUnsent) {
		s.note(err)
	}
	return deleted, err
}

// Watch calls the store's method. It is no request, so it counts nothing.
func (s *Answers) Watch(ctx context.Context, prefix string) (<-chan struct{}, error) {
	return Watch(ctx, s.Store, prefix)
}

// HasOther counts the store's answer.
func (s *Answers) HasOther(ctx context.Context, prefix string) (bool, error) {
	found, err := HasOther(ctx, s.Store, prefix)
	if !errors.Is(err, errors.ErrUnsupported) {
		s.note(err)
	}
	return found, err
}
