package session

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// answerStore is a store that remembers whether it has answered a request: with a page, a
// refusal, or any other result than store.ErrUnreachable. A command must not run without
// its lock if the store has answered, because it can be asked again.
type answerStore struct {
	store.Store
	answered atomic.Bool
}

func (s *answerStore) hasAnswered() bool {
	a, ok := s.Store.(store.Answerer)
	return s.answered.Load() || ok && a.Answered()
}

func (s *answerStore) note(err error) {
	if !errors.Is(err, store.ErrUnreachable) && !errors.Is(err, context.Canceled) {
		s.answered.Store(true)
	}
}

func (s *answerStore) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	o, err := s.Store.Put(ctx, key, body, opts)
	s.note(err)
	return o, err
}

func (s *answerStore) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	body, o, err := s.Store.Get(ctx, key, limit)
	s.note(err)
	return body, o, err
}

func (s *answerStore) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	s.note(err)
	return page, err
}

func (s *answerStore) Delete(ctx context.Context, key string) error {
	err := s.Store.Delete(ctx, key)
	s.note(err)
	return err
}

func (s *answerStore) DeleteIfMatch(ctx context.Context, key, etag string) error {
	err := store.DeleteIfMatch(ctx, s.Store, key, etag)
	s.note(err)
	return err
}
