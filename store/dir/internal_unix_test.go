//go:build unix

package dir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// contended is the key of the object that the requests of a test contend for.
const contended = "index/lock.shared/a"

// stored is a local store with an object.
func stored(t *testing.T) (*Store, store.Object) {
	t.Helper()
	s := opened(t)
	if !s.flock {
		t.Fatal("the temporary directory's file system has no flock")
	}
	s.local = true
	obj, err := s.Put(t.Context(), contended, []byte("body"), store.PutOptions{})
	assert.OK(t, err)
	return s, obj
}

// renames returns another store in the same directory, which calls before ahead of each rename and exchange.
func renames(t *testing.T, s *Store, before func()) *Store {
	t.Helper()
	other, err := Open(t.Context(), s.path)
	assert.OK(t, err)
	other.local = s.local
	other.move = func(step func(from, to string) error, from, to string) error {
		before()
		return step(from, to)
	}
	return other
}

// writers returns the requests that replace or delete a file with this ETag.
func writers(s *Store, key, etag string) map[string]func(context.Context) error {
	put := func(opts store.PutOptions) func(context.Context) error {
		return func(ctx context.Context) error { return assert.Err(s.Put(ctx, key, []byte("another's"), opts)) }
	}
	return map[string]func(context.Context) error{
		"put":             put(store.PutOptions{}),
		"if match":        put(store.PutOptions{IfMatch: etag}),
		"delete":          func(ctx context.Context) error { return s.Delete(ctx, key) },
		"delete if match": func(ctx context.Context) error { return s.DeleteIfMatch(ctx, key, etag) },
	}
}

// within sends a request whose context ends after a second, in a synctest bubble.
func within(t *testing.T, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return request(ctx)
}

// waits checks that a request waits until its context ends.
func waits(t *testing.T, name string, request func(context.Context) error) {
	t.Helper()
	assert.Is(t, within(t, request), context.DeadlineExceeded, name)
}

// whole takes the flock of the repository's directory, as older versions and clients in other languages do.
func whole(t *testing.T, s *Store) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		root, err := s.open()
		assert.OK(t, err)
		t.Cleanup(func() { root.Close() })
		unlock, err := lockRoot(ctx, root, flock.Try)
		if err == nil {
			t.Cleanup(unlock)
		}
		return err
	}
}

// TestStoppedHolder: while a put is stopped between its comparison and its rename, requests that replace
// or delete the same file wait, and so does a client that locks the whole directory. On a local file
// system requests for other files don't wait. Requests that replace nothing, or only read, never wait.
func TestStoppedHolder(t *testing.T) {
	for _, local := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) { stoppedHolder(t, local) })
	}
}

func stoppedHolder(t *testing.T, local bool) {
	s, obj := stored(t)
	s.local = local
	stopped := renames(t, s, func() {
		for name, request := range writers(s, contended, obj.ETag) {
			waits(t, name, request)
		}
		waits(t, "a client that locks the directory", whole(t, s))
		for name := range writers(s, "", "") {
			other, err := s.Put(t.Context(), "index/lock.shared/"+name, nil, store.PutOptions{IfAbsent: true})
			assert.Is(t, err, nil, "if absent")
			if request := writers(s, other.Key, other.ETag)[name]; local {
				assert.Is(t, within(t, request), nil, "%s of another file", name)
			} else {
				waits(t, name, request)
			}
		}
		if local {
			create(t, s, "index/lock.intent/new")
		}
		keys(t, s)
		body, _, err := s.Get(t.Context(), contended, 100)
		assert.That(t, err == nil && string(body) == "body", "get: %q, %v", body, err)
	})
	_, err := stopped.Put(t.Context(), contended, []byte("refreshed"), store.PutOptions{IfMatch: obj.ETag})
	assert.OK(t, err)
	body, _, err := s.Get(t.Context(), contended, 100)
	assert.That(t, err == nil && string(body) == "refreshed", "get: %q, %v", body, err)
}

// TestDirectoryIsLocked: while a client has the flock of the whole directory, every request that replaces
// or deletes a file or a link waits.
func TestDirectoryIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, obj := stored(t)
		assert.OK(t, os.Symlink("nowhere", s.path+"/index/lock.shared/link"))
		assert.OK(t, whole(t, s)(t.Context()))
		for name, request := range writers(s, contended, obj.ETag) {
			waits(t, name, request)
		}
		waits(t, "delete of a link", func(ctx context.Context) error { return s.Delete(ctx, "index/lock.shared/link") })
		create(t, s, "index/lock.shared/new")
	})
}

// TestTrialOfAFlock: the trial whether there are flocks frees the flock that it takes, and no other one.
func TestTrialOfAFlock(t *testing.T) {
	root := inRoot(t)
	open := func() *os.File {
		f, err := root.Open(".")
		assert.OK(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	tried, holder, next := open(), open(), open()
	assert.That(t, canLock(tried), "there are no flocks")
	ok, err := flock.Try(holder)
	assert.That(t, ok && err == nil, "after the trial: %t, %v", ok, err)
	assert.That(t, canLock(tried), "there are no flocks beside a holder")
	ok, err = flock.Try(next)
	assert.That(t, !ok && err == nil, "beside the holder: %t, %v", ok, err)
}

// TestPutElsewhere: on a file system that isn't local, a put without a condition renames its file under the flock of the
// directory, also if the name is free: that costs less than a look and a link.
func TestPutElsewhere(t *testing.T) {
	for _, local := range []bool{true, false} {
		s := opened(t)
		s.local = local
		moves := 0
		create(t, renames(t, s, func() { moves++ }), "index/new")
		assert.Equal(t, moves > 0, !local)
	}
}

// TestLinkIsLocked: a link is replaced under the flock of the directory, because it has none of its own.
func TestLinkIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, obj := stored(t)
		link := s.path + "/index/lock.shared/link"
		assert.OK(t, os.Symlink("a", link))
		create(t, renames(t, s, func() {
			for name, request := range writers(s, contended, obj.ETag) {
				waits(t, name, request)
			}
		}), "index/lock.shared/link")
	})
}

// TestReplacedBeforeItsFlock: if a file is replaced while a request waits for its flock, the request then
// waits for the flock of the new file.
func TestReplacedBeforeItsFlock(t *testing.T) {
	for name := range writers(nil, "", "") {
		synctest.Test(t, func(t *testing.T) {
			s, obj := stored(t)
			path := s.path + "/" + contended
			held := func() *os.File {
				f, err := os.Open(path)
				assert.OK(t, err)
				ok, err := flock.Try(f)
				assert.That(t, ok && err == nil, "%v", err)
				return f
			}
			old := held()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- writers(s, contended, obj.ETag)[name](ctx) }()
			time.Sleep(time.Second) // it waits for the file
			assert.OK(t, os.WriteFile(path+".new", []byte("body"), 0o600))
			assert.OK(t, os.Rename(path+".new", path))
			now := held()
			flock.Close(old)
			time.Sleep(time.Second)
			cancel()
			assert.Is(t, <-ended, context.Canceled, name)
			flock.Close(now)
		})
	}
}

// TestSlowRenames: if a rename takes 300 ms, the requests of 20 holders are still answered within a
// second.
func TestSlowRenames(t *testing.T) {
	first, _ := stored(t)
	synctest.Test(t, func(t *testing.T) {
		var holders sync.WaitGroup
		for n := range 20 {
			s := renames(t, first, func() { time.Sleep(300 * time.Millisecond) })
			key := fmt.Sprint("index/lock.shared/", n)
			var obj store.Object
			answered := func(what string, request func(ctx context.Context) error) {
				assert.Is(t, within(t, request), nil, "%s of holder %d", what, n)
			}
			put := func(ctx context.Context) (err error) {
				obj, err = s.Put(ctx, key, []byte(obj.ETag), store.PutOptions{IfMatch: obj.ETag})
				return err
			}
			holders.Go(func() {
				answered("flag", put)
				for range 3 {
					answered("refresh", put)
				}
				answered("release", func(ctx context.Context) error { return s.DeleteIfMatch(ctx, key, obj.ETag) })
			})
		}
		holders.Wait()
	})
}

// TestErrorsOfTheSystem: each error of the system has its class.
func TestErrorsOfTheSystem(t *testing.T) {
	for system, want := range map[syscall.Errno]error{
		syscall.ENOTCONN: store.ErrUnreachable, syscall.EHOSTDOWN: store.ErrUnreachable, syscall.ETIMEDOUT: store.ErrUnreachable,
		syscall.EDQUOT: store.ErrFull, syscall.EROFS: store.ErrReadOnly, syscall.EACCES: store.ErrPermission, syscall.ENAMETOOLONG: store.ErrInvalidKey,
	} {
		err := failed("put", "k", cant("write into", "/srv", system))
		assert.That(t, errors.Is(err, want) && errors.Is(err, system), "%v: %v, want %v", system, err, want)
	}
	for _, answer := range []syscall.Errno{syscall.ESTALE, syscall.EIO} { // a command mustn't run without its lock
		err := failed("open", "k", cant("open", "/srv", answer))
		assert.That(t, !errors.Is(err, store.ErrUnreachable), "%v counts as silence: %v", answer, err)
	}
}

// TestPipeInstead: a pipe that has replaced a file before the file was opened isn't an empty file, which would be a
// released lock.
func TestPipeInstead(t *testing.T) {
	s := opened(t)
	create(t, s, "file")
	assert.OK(t, syscall.Mkfifo(filepath.Join(s.path, "pipe"), 0o600))
	root, err := s.open()
	assert.OK(t, err)
	defer root.Close()
	info, err := root.Lstat("file")
	assert.OK(t, err)
	f, err := root.Open("pipe")
	assert.OK(t, err)
	defer f.Close()
	body, obj, err := contents(root, "file", f, info, 100)
	assert.Is(t, err, errIrregular)
	assert.That(t, body == nil && obj.Size == -1, "%q, %+v", body, obj)
}
