package answers

import (
	"context"
	"errors"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/b2"
	"github.com/repolock/repolock/store/dir"
	"github.com/repolock/repolock/store/memory"
	"github.com/repolock/repolock/store/open"
	"github.com/repolock/repolock/store/sftp"
)

var (
	_ answerer       = (*b2.Store)(nil)
	_ answerer       = (*sftp.Store)(nil)
	_ store.Surveyor = (*sftp.Store)(nil)
	_ store.Surveyor = (*dir.Store)(nil)
)

// TestBuckets: the stores of S3 and MinIO report whether an earlier request of a method was answered.
func TestBuckets(t *testing.T) {
	for _, url := range []string{"s3://bucket/p", "minio://localhost:1/bucket/p"} {
		s, err := open.Store(t.Context(), url)
		assert.OK(t, err)
		_, ok := s.(answerer)
		assert.That(t, ok, "%s: it is no answerer", url)
	}
}

// TestAnswers: every result counts as an answer, except silence, a request that the caller has cancelled,
// and one that was never sent.
func TestAnswers(t *testing.T) {
	hooks := &hookstore.Store{Store: memory.New(memory.Options{NoBatch: true})}
	for _, c := range []struct {
		err      error
		answered bool
	}{{store.Unreachable(errors.New("no")), false}, {context.Canceled, false}, {store.ErrPermission, true}, {nil, true}} {
		hooks.Before(func(context.Context, hookstore.Request) error { return c.err })
		for op, send := range map[string]func(*Store){
			"put":    func(s *Store) { _, _ = s.Put(t.Context(), "k", nil, store.PutOptions{}) },
			"get":    func(s *Store) { _, _, _ = s.Get(t.Context(), "k", 1) },
			"list":   func(s *Store) { _, _ = s.List(t.Context(), "", "") },
			"delete": func(s *Store) { _ = s.Delete(t.Context(), "k") },
		} {
			s := Of(hooks)
			send(s)
			assert.Equal(t, s.Answered(), c.answered, "%s, %v: answered", op, c.err)
		}
	}
	unsent := Of(only{hooks})
	assert.Is(t, assert.Err(unsent.DeleteAll(t.Context(), []string{"k"})), store.ErrBatchUnsent)
	assert.Is(t, assert.Err(unsent.HasOther(t.Context(), "k")), errors.ErrUnsupported)
	assert.That(t, !unsent.Answered(), "a request that wasn't sent was answered")
}

// only has the methods of a store.Store and no others.
type only struct{ store.Store }
