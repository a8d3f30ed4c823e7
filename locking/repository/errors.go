package repository

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// classes are what errors of the store mean for a lock. The first one fits.
var classes = []struct{ is, class error }{
	{replock.ErrLost, locking.ErrLost},
	{replock.ErrReleased, locking.ErrLost},
	{store.ErrPermission, locking.ErrPermission},
	{store.ErrConfig, locking.ErrUnfit},
	{store.ErrListing, locking.ErrUnfit},
	{store.ErrNotFound, locking.ErrUnfit}, // there is no bucket
	{replock.ErrSlow, locking.ErrUnfit},
}

// classed returns an error that is also one of package locking, with the same text. silent says
// that the store has answered no request: only then is it unreachable.
func classed(err error, silent bool) error {
	for _, c := range classes {
		if errors.Is(err, c.is) {
			return classError{err, c.class}
		}
	}
	if silent && errors.Is(err, store.ErrUnreachable) {
		return classError{err, locking.ErrUnreachable}
	}
	return err
}

// classError is an error that is also another one, which its text doesn't mention.
type classError struct{ error, class error }

func (e classError) Error() string   { return e.error.Error() }
func (e classError) Unwrap() []error { return []error{e.error, e.class} }

// lost returns the error of a lock that isn't held any more.
func lost(h locking.Handle, why error) error {
	if why == nil {
		return fmt.Errorf("lock %q: %w", h.Key(), locking.ErrLost)
	}
	return fmt.Errorf("lock %q: %w", h.Key(), classError{why, locking.ErrLost})
}

// answers is a store that counts its answers: pages, refusals, and any other result than
// store.ErrUnreachable.
type answers struct {
	store.Store
	n atomic.Int64
}

// listen returns a function that reports whether the store hasn't answered since. An answer to
// another caller counts too: it shows that the store can be reached.
func (s *answers) listen() (silent func() bool) {
	before := s.n.Load()
	return func() bool {
		a, ok := s.Store.(store.Answerer)
		return s.n.Load() == before && !(ok && a.Answered())
	}
}

func (s *answers) note(err error) {
	if !errors.Is(err, store.ErrUnreachable) && !errors.Is(err, context.Canceled) {
		s.n.Add(1)
	}
}

func (s *answers) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	o, err := s.Store.Put(ctx, key, body, opts)
	s.note(err)
	return o, err
}

func (s *answers) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	body, o, err := s.Store.Get(ctx, key, limit)
	s.note(err)
	return body, o, err
}

func (s *answers) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	s.note(err)
	return page, err
}

func (s *answers) Delete(ctx context.Context, key string) error {
	err := s.Store.Delete(ctx, key)
	s.note(err)
	return err
}

func (s *answers) DeleteIfMatch(ctx context.Context, key, etag string) error {
	err := store.DeleteIfMatch(ctx, s.Store, key, etag)
	s.note(err)
	return err
}
