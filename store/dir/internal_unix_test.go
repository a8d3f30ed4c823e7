//go:build unix

package dir

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// TestStoppedHolder: while a stopped process has the flock, a replacing or removing request
// waits for it and heeds its context. Requests that don't need the flock continue.
func TestStoppedHolder(t *testing.T) {
	s := opened(t, Options{})
	if !s.flock {
		t.Fatal("the temporary directory's file system has no flock")
	}
	const key = "index/lock.exclusive"
	obj, err := s.Put(t.Context(), key, []byte("body"), store.PutOptions{})
	assert.OK(t, err)
	root, err := s.open()
	assert.OK(t, err)
	defer root.Close()
	unlock, err := s.lock(t.Context(), root)
	assert.OK(t, err)

	for name, request := range map[string]func(context.Context) error{
		"put": func(ctx context.Context) error { return assert.Err(s.Put(ctx, key, nil, store.PutOptions{})) },
		"if match": func(ctx context.Context) error {
			return assert.Err(s.Put(ctx, key, nil, store.PutOptions{IfMatch: obj.ETag}))
		},
		"delete":          func(ctx context.Context) error { return s.Delete(ctx, key) },
		"delete if match": func(ctx context.Context) error { return s.DeleteIfMatch(ctx, key, obj.ETag) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		assert.Is(t, request(ctx), context.DeadlineExceeded, name)
		cancel()
	}
	absent := assert.Err(s.Put(t.Context(), "index/lock.intent/x", nil, store.PutOptions{IfAbsent: true}))
	assert.Is(t, absent, nil, "if absent")
	page, err := s.List(t.Context(), "", "")
	assert.That(t, err == nil && len(page.Objects) == 2, "listed %+v, %v", page.Objects, err)
	body, _, err := s.Get(t.Context(), key, 100)
	assert.That(t, err == nil && string(body) == "body", "get: %q, %v", body, err)

	unlock()
	assert.Is(t, s.Delete(t.Context(), key), nil)
}

// TestErrorsOfTheSystem: each class of the system's errors has its meaning.
func TestErrorsOfTheSystem(t *testing.T) {
	for system, want := range map[syscall.Errno]error{
		syscall.ENOTCONN: store.ErrUnreachable, syscall.EHOSTDOWN: store.ErrUnreachable, syscall.ETIMEDOUT: store.ErrUnreachable,
		syscall.EDQUOT: store.ErrFull, syscall.EROFS: store.ErrReadOnly, syscall.EACCES: store.ErrPermission, syscall.ENAMETOOLONG: store.ErrInvalidKey,
	} {
		err := failed("put", "k", cant("write into", "/srv", system))
		assert.That(t, errors.Is(err, want) && errors.Is(err, system), "%v: %v, want %v", system, err, want)
	}
}
