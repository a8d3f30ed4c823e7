//go:build unix

package dir

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

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
	must(t, err)
	root, err := s.open()
	must(t, err)
	defer root.Close()
	unlock, err := s.lock(t.Context(), root)
	must(t, err)

	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	_, put := s.Put(soon(), key, nil, store.PutOptions{})
	_, match := s.Put(soon(), key, nil, store.PutOptions{IfMatch: obj.ETag})
	for name, err := range map[string]error{"put": put, "if match": match, "delete": s.Delete(soon(), key), "delete if match": s.DeleteIfMatch(soon(), key, obj.ETag)} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Put(t.Context(), "index/lock.intent/x", nil, store.PutOptions{IfAbsent: true}); err != nil {
		t.Errorf("if absent: %v", err)
	}
	if page, err := s.List(t.Context(), "", ""); err != nil || len(page.Objects) != 2 {
		t.Errorf("listed %+v, %v", page.Objects, err)
	}
	if body, _, err := s.Get(t.Context(), key, 100); err != nil || string(body) != "body" {
		t.Errorf("get: %q, %v", body, err)
	}

	unlock()
	if err := s.Delete(t.Context(), key); err != nil {
		t.Error(err)
	}
}

// TestErrorsOfTheSystem: each class of the system's errors has its meaning.
func TestErrorsOfTheSystem(t *testing.T) {
	for system, want := range map[syscall.Errno]error{
		syscall.ENOTCONN: store.ErrUnreachable, syscall.EHOSTDOWN: store.ErrUnreachable, syscall.ETIMEDOUT: store.ErrUnreachable,
		syscall.EDQUOT: store.ErrFull, syscall.EROFS: store.ErrReadOnly, syscall.EACCES: store.ErrPermission, syscall.ENAMETOOLONG: store.ErrInvalidKey,
	} {
		if err := failed("put", "k", cant("write into", "/srv", system)); !errors.Is(err, want) || !errors.Is(err, system) {
			t.Errorf("%v: %v, want %v", system, err, want)
		}
	}
}
