package mem

import (
	"context"
	"strings"

	"github.com/repolock/repolock/store"
)

var _ store.Watcher = (*Store)(nil)

// watch is a caller of Watch.
type watch struct {
	prefix string
	hints  chan struct{}
}

// Watch sends a value as soon as an object under the prefix is deleted.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("watch", prefix, err)
	}
	w := &watch{prefix, make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w] = true
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, w)
	})
	return w.hints, nil
}

// hint tells the watches of a key that it was deleted, while mu is held.
func (s *Store) hint(key string) {
	for w := range s.watches {
		if !strings.HasPrefix(key, w.prefix) {
			continue
		}
		select {
		case w.hints <- struct{}{}:
		default: // it has one already
		}
	}
}
