//go:build unix

package sftp

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// TestUndeleted: a file counts as deleted only if the server says so, or a look shows that it is gone. An acquirer that
// has reaped a stale lock goes on without another look.
func TestUndeleted(t *testing.T) {
	for _, code := range []sftpwire.Code{sftpwire.Failure, sftpwire.PermissionDenied, sftpwire.OpUnsupported, sftpwire.BadMessage} {
		root := repository(t, 0o700)
		r := &relay{}
		s := r.on(t, root)
		put(t, s, "index/lock.shared/a", "index/lock.shared/b")
		r.answers(refuse(code, typeRemove))
		err := s.Delete(t.Context(), "index/lock.shared/a")
		assert.That(t, err != nil && !errors.Is(err, store.ErrNotFound), "%v: deleted: %v", code, err)
		deleted, err := store.DeleteAll(t.Context(), s, []string{"index/lock.shared/a", "index/lock.shared/b"})
		assert.That(t, err == nil && slices.Equal(deleted, []bool{false, false}), "%v: deleted: %v, %v", code, deleted, err)
		has(t, root, "index/", "index/lock.shared/", "index/lock.shared/a", "index/lock.shared/b")

		r.answers(refuse(code, typeRemove, typeLstat)) // nor does the look show anything
		assert.That(t, s.Delete(t.Context(), "index/lock.shared/a") != nil, "%v: deleted without a look", code)

		r.answers(refuse(code, typeRemove))
		assert.OK(t, os.Remove(filepath.Join(root, "index/lock.shared/a")))
		assert.OK(t, s.Delete(t.Context(), "index/lock.shared/a"))
		deleted, err = store.DeleteAll(t.Context(), s, []string{"index/lock.shared/a"})
		assert.That(t, err == nil && slices.Equal(deleted, []bool{false}), "the answer counts alone: %v, %v", deleted, err)
	}
}

// TestUnread: a file counts as missing only if the server says so, and not because it can't be looked at, opened or read.
func TestUnread(t *testing.T) {
	for _, code := range []sftpwire.Code{sftpwire.Failure, sftpwire.PermissionDenied, sftpwire.OpUnsupported, sftpwire.BadMessage} {
		for _, kind := range []byte{typeLstat, typeOpen, typeRead} {
			root := repository(t, 0o700)
			r := &relay{}
			s := r.on(t, root)
			put(t, s, "index/lock.shared/a")
			r.answers(refuse(code, kind))
			_, _, err := s.Get(t.Context(), "index/lock.shared/a", 1<<10)
			assert.That(t, err != nil && !errors.Is(err, store.ErrNotFound), "%v to a request of type %d: %v", code, kind, err)
		}
	}
	root := repository(t, 0o700)
	r := &relay{}
	s := r.on(t, root)
	put(t, s, "index/lock.shared/a")
	r.answers(func(req request) []byte { // missing, as far as a look shows, and its folder can't be listed
		if req.kind == typeLstat && filepath.Base(req.path()) == "a" {
			return status(req.id, sftpwire.NoSuchFile)
		}
		return refuse(sftpwire.Failure, typeOpendir)(req)
	})
	_, _, err := s.Get(t.Context(), "index/lock.shared/a", 1<<10)
	assert.That(t, err != nil && !errors.Is(err, store.ErrNotFound), "missing without a listing: %v", err)
}

// TestReadInPart: a file whose second part can't be read is an error, and isn't cut.
func TestReadInPart(t *testing.T) {
	root := repository(t, 0o700)
	r := &relay{}
	s := r.on(t, root)
	assert.OK(t, assert.Err(s.Put(t.Context(), "k", make([]byte, 2*chunk), store.PutOptions{})))
	reads := 0
	r.answers(func(req request) []byte {
		if req.kind == typeRead {
			if reads++; reads > 1 {
				return status(req.id, sftpwire.Failure)
			}
		}
		return nil
	})
	body, _, err := s.Get(t.Context(), "k", 4*chunk)
	assert.That(t, err != nil && body == nil && reads > 1, "%d bytes of %d, %v", len(body), 2*chunk, err)
}

// TestUnmoved: a put whose move is refused has written nothing, whatever the look after it shows.
func TestUnmoved(t *testing.T) {
	root := repository(t, 0o700)
	r := &relay{}
	s := r.on(t, root)
	put(t, s, "k")
	for _, opts := range []store.PutOptions{{}, {IfAbsent: true}} {
		moves := 0
		r.answers(func(req request) []byte {
			switch {
			case req.kind == typeExtended && (req.path() == sftpwire.ExtPosixRename || req.path() == sftpwire.ExtHardlink):
				moves++
				return status(req.id, sftpwire.Failure)
			case req.kind == typeLstat && moves > 0:
				return status(req.id, sftpwire.Failure)
			}
			return nil
		})
		_, err := s.Put(t.Context(), "other", []byte("new"), opts)
		assert.That(t, err != nil && moves > 0, "%+v: written: %v", opts, err)
		r.answers(nil)
		has(t, root, "k")
	}
}
