package b2

import (
	"context"

	"github.com/repolock/repolock/store"
)

// Put uploads a version. What this Store had put under the key before is removed,
// unless it may not delete.
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
		// It is covered by a newer one, so nobody misses it if it stays.
		if may, _ := s.mayRemove(ctx); may {
			_, _ = s.removeVersion(ctx, name, old)
		}
	}
	return v, nil
}

// remember notes that a version was put, and gives the one that it has covered
// of those that this Store has put. Two that are put at once may be stored in
// either order.
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

// forget drops what is known of a name that was deleted.
func (s *Store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wrote, name)
	delete(s.owed, name)
}
