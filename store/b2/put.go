package b2

import (
	"context"

	"github.com/repolock/repolock/store"
)

// Put uploads a version, and removes the one that this Store put under the key before, if
// the application key permits it. It returns store.ErrConditionUnsupported for a condition.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	v, err := s.put(ctx, key, body, opts)
	if err != nil {
		return store.Object{}, failed("put", key, err)
	}
	return v.object(key), nil
}

func (s *Store) put(ctx context.Context, key string, body []byte, opts store.PutOptions) (version, error) {
	name, err := s.name(ctx, key)
	if err != nil {
		return version{}, err
	}
	if opts.IfAbsent || opts.IfMatch != "" {
		return version{}, store.ErrConditionUnsupported
	}
	if opts.Replaces != "" {
		return s.replace(ctx, name, body, opts.Replaces)
	}
	v, err := s.upload(ctx, name, body)
	if err != nil {
		return version{}, err
	}
	if old, ok := s.remember(name, v); ok {
		// A newer one covers it, so that it does no harm if it stays.
		if may, _ := s.mayRemove(ctx); may {
			_, _ = s.removeVersion(ctx, name, old)
		}
	}
	return v, nil
}

// remember notes that a version was put, and returns the version of this Store that it
// covers. B2 can store two puts at the same time in either order.
func (s *Store) remember(name string, v version) (covered version, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owed, name)
	old, ok := s.wrote[name]
	if !ok || old.time.Before(v.time) {
		s.wrote[name] = v
		return old, ok
	}
	return v, old.time.After(v.time)
}

// forget drops the notes of a name that was deleted.
func (s *Store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wrote, name)
	delete(s.owed, name)
}
