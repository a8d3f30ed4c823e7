//go:build unix

package sftp

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// without removes an extension from the server's VERSION.
func without(extension string) func([]byte) []byte {
	return func(p []byte) []byte {
		if p[4] != typeVersion {
			return p
		}
		return []byte(strings.ReplaceAll(string(p), extension, "no"+extension[2:]))
	}
}

// TestWithoutExtensions: a server that can't replace a file in one step takes no locks, but shows them. A server
// without links has no If-None-Match. A server that can replace a file, and doesn't name the extension, takes locks.
func TestWithoutExtensions(t *testing.T) {
	root := repository(t, 0o700)
	put(t, inGo.on(t, root), "index/lock.exclusive")
	renames := extended(sftpwire.ExtPosixRename)
	var s *Store
	for _, code := range []sftpwire.Code{sftpwire.OpUnsupported, sftpwire.Failure, sftpwire.BadMessage} {
		r := &relay{edit: without(sftpwire.ExtPosixRename)}
		r.answers(func(req request) []byte {
			if renames(req) {
				return status(req.id, code)
			}
			return nil
		})
		s = r.on(t, root)
		for _, key := range []string{"index/new", "index/lock.exclusive"} {
			_, err := s.Put(t.Context(), key, nil, store.PutOptions{})
			assert.Says(t, err, store.ErrConfig, "can't replace a lock in one step, because it has no "+sftpwire.ExtPosixRename)
		}
		assert.Is(t, assert.Err(s.Put(t.Context(), "index/new", nil, store.PutOptions{IfAbsent: true})), store.ErrConditionUnsent)
		has(t, root, "index/", "index/lock.exclusive")
	}
	p, err := s.List(t.Context(), "index/", "")
	assert.OK(t, err)
	assert.Equal(t, keys(p), []string{"index/lock.exclusive"})
	s = (&relay{edit: without(sftpwire.ExtPosixRename)}).on(t, root)
	assert.Equal(t, s.Properties().IfAbsent, store.Unsupported)
	put(t, s, "index/new", "index/new")
	assert.OK(t, s.Delete(t.Context(), "index/new"))

	s = (&relay{edit: without(sftpwire.ExtHardlink)}).on(t, root)
	assert.Equal(t, s.Properties().IfAbsent, store.Unsupported)
	_, err = s.Put(t.Context(), "index/new", nil, store.PutOptions{IfAbsent: true})
	assert.Is(t, err, store.ErrConditionUnsupported)
	put(t, s, "index/new")
	has(t, root, "index/", "index/lock.exclusive", "index/new")
}

// TestReadOnlyServer: a server that has no posix-rename because it permits no writes is called read-only.
func TestReadOnlyServer(t *testing.T) {
	r := &relay{edit: without(sftpwire.ExtPosixRename), answer: refuse(sftpwire.PermissionDenied, typeOpen)}
	_, err := r.on(t, repository(t, 0o700)).Put(t.Context(), "index/new", nil, store.PutOptions{})
	assert.Says(t, err, store.ErrReadOnly, "lets this user write nothing into")
}

// TestTriedLinks: the store relies on hard links only if the server has made one, and refused another one of the same
// name. The first put with IfAbsent finds that out, before it makes a link, and in its own flights. Other puts try nothing
// out, and after a trial that failed nothing is sent.
func TestTriedLinks(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(n int, r request) []byte // to the n-th link
		kept   bool
	}{
		"links":       {func(int, request) []byte { return nil }, true},
		"refused":     {func(_ int, r request) []byte { return status(r.id, sftpwire.Failure) }, false},
		"not allowed": {func(_ int, r request) []byte { return status(r.id, sftpwire.PermissionDenied) }, false},
		"invalid":     {func(_ int, r request) []byte { return status(r.id, sftpwire.BadMessage) }, false},
		"pretended":   {func(_ int, r request) []byte { return status(r.id, sftpwire.OK) }, false},
		"that replace files": {func(n int, r request) []byte {
			if n == 2 {
				return status(r.id, sftpwire.OK)
			}
			return nil
		}, false},
	} {
		root := repository(t, 0o700)
		r, n := &relay{}, 0
		r.answers(func(req request) []byte {
			if !extended(sftpwire.ExtHardlink)(req) {
				return nil
			}
			n++
			return c.answer(n, req)
		})
		s := r.on(t, root)
		put(t, s, "index/other")
		assert.Equal(t, s.Properties().IfAbsent, store.Kept, name)
		assert.Equal(t, n, 0, name)
		_, err := s.Put(t.Context(), "index/k", []byte("1"), store.PutOptions{IfAbsent: true})
		if c.kept {
			assert.OK(t, err)
			assert.Equal(t, n, 3, name)
			assert.OK(t, assert.Err(s.Put(t.Context(), "index/k2", nil, store.PutOptions{IfAbsent: true})))
			assert.Equal(t, n, 4, name)
			has(t, root, "index/", "index/k", "index/k2", "index/other")
		} else {
			assert.Is(t, err, store.ErrConditionUnsupported, name)
			assert.Equal(t, n, 2, name)
			assert.Equal(t, s.Properties().IfAbsent, store.Unsupported, name)
			has(t, root, "index/", "index/other")
			flights := r.flights.Load()
			assert.Is(t, assert.Err(s.Put(t.Context(), "index/k", nil, store.PutOptions{IfAbsent: true})), store.ErrConditionUnsent, name)
			assert.Equal(t, r.flights.Load(), flights, name)
		}
		d, err := s.Describe(t.Context())
		assert.OK(t, err)
		assert.Equal(t, strings.Contains(d.Server, "hard links"), !c.kept, name)
	}
}

// tried lets a store try links out.
func tried(t *testing.T, s *Store) {
	t.Helper()
	assert.OK(t, assert.Err(s.Put(t.Context(), "index/tried", nil, store.PutOptions{IfAbsent: true})))
	assert.OK(t, s.Delete(t.Context(), "index/tried"))
}

// takingBack makes a relay's server write a removed file back when the file is closed.
func takingBack(root string) *relay {
	r, removed := &relay{}, map[string]bool{}
	opens, paths := map[uint32]string{}, map[string]string{}
	r.answers(func(req request) []byte {
		switch req.kind {
		case typeOpen:
			if flags := req.body[4+len(req.path()):]; binary.BigEndian.Uint32([]byte(flags))&sftpwire.FlagWrite == 0 {
				break // a file that was only read isn't written back
			}
			r.mu.Lock()
			opens[req.id] = req.path()
			r.mu.Unlock()
		case typeRemove:
			removed[req.path()] = true // the server might still be about to make the file
		case typeClose:
			r.mu.Lock()
			path := paths[req.path()]
			r.mu.Unlock()
			if removed[path] {
				removed[path] = false
				_ = os.WriteFile(path, nil, 0o600)
			}
		}
		return nil
	})
	r.edits(func(p []byte) []byte {
		if p[4] == 102 { // a handle
			r.mu.Lock()
			paths[string(p[13:])] = opens[uint32(p[5])<<24|uint32(p[6])<<16|uint32(p[7])<<8|uint32(p[8])]
			r.mu.Unlock()
		}
		return p
	})
	return r
}

// TestTakenBack: a server that writes an open file back although its name was removed gets no clock file, and no
// temporary file is left in the root.
func TestTakenBack(t *testing.T) {
	root := repository(t, 0o700)
	s := takingBack(root).on(t, root)
	put(t, s, "index/lock.exclusive")
	p, err := s.List(t.Context(), "index/lock.", "")
	assert.OK(t, err)
	assert.That(t, p.Now.IsZero(), "a clock of %v", p.Now)
	assert.OK(t, s.Delete(t.Context(), "index/lock.exclusive"))
	assert.OK(t, s.Close())
	has(t, root, "index/")
}

// TestStrays: a deletion removes the temporary files in the root, and in index, that dead processes left a day ago, also
// if the server shows no time but that of our own files.
func TestStrays(t *testing.T) {
	root := repository(t, 0o700)
	assert.OK(t, os.Mkdir(filepath.Join(root, "index"), 0o700))
	for _, dir := range []string{"", "index"} {
		for name, age := range map[string]time.Duration{".repolock-OLD.tmp": 25 * time.Hour, ".repolock-NEW.tmp": 23 * time.Hour, "other": 25 * time.Hour} {
			path, then := filepath.Join(root, dir, name), time.Now().Add(-age)
			assert.OK(t, os.WriteFile(path, nil, 0o600))
			assert.OK(t, os.Chtimes(path, then, then))
		}
	}
	s := takingBack(root).on(t, root)
	assert.OK(t, s.Delete(t.Context(), "index/lock.exclusive")) // nothing is known of the root yet
	put(t, s, "index/lock.exclusive")
	assert.OK(t, assert.Err(s.List(t.Context(), "index/", "")))
	assert.OK(t, s.Delete(t.Context(), "index/lock.exclusive"))
	has(t, root, ".repolock-NEW.tmp", "index/", "index/.repolock-NEW.tmp", "index/other", "other")
}

// space is the answer to a statvfs.
func space(id uint32, free, flags int) []byte {
	body := ""
	for _, n := range []int{4096, 4096, 1000, free, free, 100, 50, 50, 1, flags, 255} {
		body += u32(0) + u32(n)
	}
	return reply(typeExtendedReply, id, body)
}

// TestRefused: a Put that the server refuses says why, replaces nothing, and leaves nothing.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		code        sftpwire.Code
		kind        byte
		free, flags int
		want        error
	}{
		"full":              {sftpwire.Failure, typeWrite, 0, 0, store.ErrFull},
		"full at the close": {sftpwire.Failure, typeClose, 0, 0, store.ErrFull}, // some servers write only then
		"full of files":     {sftpwire.Failure, typeOpen, 0, 0, store.ErrFull},
		"full of folders":   {sftpwire.Failure, typeMkdir, 0, 0, store.ErrFull},
		"damaged":           {sftpwire.Failure, typeWrite, 500, 0, sftpwire.Failure},
		"read-only":         {sftpwire.Failure, typeOpen, 500, 1, store.ErrReadOnly},
		"of another user":   {sftpwire.PermissionDenied, typeOpen, 500, 0, store.ErrPermission},
		"unable":            {sftpwire.OpUnsupported, typeOpen, 500, 0, store.ErrConfig},
		"full, not allowed": {sftpwire.PermissionDenied, typeWrite, 0, 0, store.ErrPermission},
	} {
		root := repository(t, 0o700)
		r := &relay{}
		s := r.on(t, root)
		put(t, s, "index/lock.exclusive")
		r.answers(func(req request) []byte {
			switch {
			case req.kind == c.kind:
				return status(req.id, c.code)
			case req.kind == typeExtended && req.path() == sftpwire.ExtStatvfs:
				return space(req.id, c.free, c.flags)
			}
			return nil
		})
		key := "index/lock.exclusive"
		if c.kind == typeMkdir {
			key = "index/lock.shared/x"
		}
		_, err := s.Put(t.Context(), key, []byte("new"), store.PutOptions{})
		assert.Is(t, err, c.want, name)
		assert.That(t, !errors.Is(err, store.ErrUnreachable), "%s: %v", name, err)
		has(t, root, "index/", "index/lock.exclusive")
		body, err := os.ReadFile(filepath.Join(root, "index/lock.exclusive"))
		assert.OK(t, err)
		assert.Equal(t, string(body), "body of index/lock.exclusive")
	}
}

// TestShortWrite: a file that is shorter than its body isn't moved to its place.
func TestShortWrite(t *testing.T) {
	root := repository(t, 0o700)
	r := &relay{}
	s := r.on(t, root)
	put(t, s, "k")
	r.answers(func(req request) []byte {
		if req.kind == typeWrite {
			return status(req.id, sftpwire.OK)
		}
		return nil
	})
	_, err := s.Put(t.Context(), "k", []byte("new"), store.PutOptions{})
	assert.Says(t, err, sftpwire.Failure, "0 bytes of 3")
	has(t, root, "k")
}

// TestNameTooLong: no file system has a name of over 255 bytes. Nothing is sent.
func TestNameTooLong(t *testing.T) {
	r := &relay{}
	s := r.on(t, repository(t, 0o700))
	key := "index/" + strings.Repeat("x", 256)
	put(t, s, key[:len(key)-1])
	flights := r.flights.Load()
	for _, opts := range []store.PutOptions{{}, {IfAbsent: true}} {
		assert.Is(t, assert.Err(s.Put(t.Context(), key, nil, opts)), store.ErrInvalidKey)
	}
	assert.Is(t, assert.Err(second(s.Get(t.Context(), key, 1))), store.ErrInvalidKey)
	assert.Equal(t, r.flights.Load(), flights)
}

// TestRefusedPutLeavesNothing: a refused Put removes the directories that it has made, but never index.
func TestRefusedPutLeavesNothing(t *testing.T) {
	root := repository(t, 0o700)
	r := &relay{}
	s := r.on(t, root)
	r.answers(refuse(sftpwire.Failure, typeWrite))
	_, err := s.Put(t.Context(), "index/locks/a/lock.exclusive", []byte("x"), store.PutOptions{})
	assert.Is(t, err, sftpwire.Failure)
	has(t, root, "index/")
}

// TestEndedWhileWriting: if a Put's context ends, no temporary file stays.
func TestEndedWhileWriting(t *testing.T) {
	for _, kind := range []byte{typeMkdir, typeOpen, typeWrite} {
		synctest.Test(t, func(t *testing.T) {
			root := repository(t, 0o700)
			r := &relay{}
			s := r.on(t, root)
			put(t, s, "index/k")
			ctx, cancel := context.WithCancel(t.Context())
			returned := make(chan struct{})
			r.answers(func(req request) []byte {
				if req.kind == kind {
					cancel()
					<-returned
				}
				return nil
			})
			_, err := s.Put(ctx, "index/locks/a/k", []byte("new"), store.PutOptions{})
			close(returned)
			assert.Is(t, err, context.Canceled)
			synctest.Wait()
			has(t, root, "index/", "index/k")
			assert.Equal(t, r.dials.Load(), 1)
		})
	}
}

// TestLinkRefused: a link fails because of an object that is then deleted, or because there are no links.
func TestLinkRefused(t *testing.T) {
	for refusals, want := range map[int]error{1: nil, 100: store.ErrConditionUnsupported} {
		for _, code := range []sftpwire.Code{sftpwire.Failure, sftpwire.PermissionDenied} {
			root := repository(t, 0o700)
			r, refused := &relay{}, 0
			s := r.on(t, root)
			tried(t, s)
			r.answers(func(req request) []byte {
				if req.kind == typeExtended && req.path() == sftpwire.ExtHardlink && refused < refusals {
					refused++
					return status(req.id, code)
				}
				return nil
			})
			_, err := s.Put(t.Context(), "index/k", []byte("body"), store.PutOptions{IfAbsent: true})
			if code == sftpwire.PermissionDenied {
				want = store.ErrConditionUnsupported
			}
			assert.Is(t, err, want, "%d times %v", refusals, code)
			if want == nil {
				has(t, root, "index/", "index/k")
			} else {
				has(t, root, "index/")
			}
		}
	}
}

// pretend answers each request for which is returns true with success, and counts it. The server doesn't get it.
func pretend(n *int, is func(request) bool) func(request) []byte {
	return func(req request) []byte {
		if !is(req) {
			return nil
		}
		*n++
		return status(req.id, sftpwire.OK)
	}
}

func extended(extension string) func(request) bool {
	return func(req request) bool { return req.kind == typeExtended && req.path() == extension }
}

// TestPretendedLink: a server that answers a link with success, and makes none, has no links. The connection remembers
// that.
func TestPretendedLink(t *testing.T) {
	root := repository(t, 0o700)
	r, links := &relay{}, 0
	s := r.on(t, root)
	tried(t, s)
	r.answers(pretend(&links, extended(sftpwire.ExtHardlink)))
	for range 2 {
		_, err := s.Put(t.Context(), "index/k", []byte("body"), store.PutOptions{IfAbsent: true})
		assert.Is(t, err, store.ErrConditionUnsupported)
		has(t, root, "index/")
		assert.Equal(t, links, maxUnlinked+1)
		assert.Equal(t, s.Properties().IfAbsent, store.Unsupported)
	}
	put(t, s, "index/k")
	has(t, root, "index/", "index/k")
	assert.OK(t, (*r.ended.Load())())
	<-s.dialed.conn.Done()
	r.answers(nil)
	_, err := s.Put(t.Context(), "index/new", nil, store.PutOptions{IfAbsent: true})
	assert.OK(t, err) // another server might answer
	assert.Equal(t, s.Properties().IfAbsent, store.Kept)
}

// TestLinkIsDeletedAtOnce: a link that another process deletes at once is no sign of a server without links.
func TestLinkIsDeletedAtOnce(t *testing.T) {
	root := repository(t, 0o700)
	r, links := &relay{}, 0
	s := r.on(t, root)
	tried(t, s)
	once := pretend(&links, extended(sftpwire.ExtHardlink))
	r.answers(func(req request) []byte {
		if links == 0 {
			return once(req)
		}
		return nil
	})
	_, err := s.Put(t.Context(), "index/k", []byte("body"), store.PutOptions{IfAbsent: true})
	assert.OK(t, err)
	assert.Equal(t, links, 1)
	has(t, root, "index/", "index/k")
}

// TestPretendedRename: a Put fails if the server answers the rename with success, and doesn't rename.
func TestPretendedRename(t *testing.T) {
	root := repository(t, 0o700)
	r, renames := &relay{}, 0
	s := r.on(t, root)
	put(t, s, "index/k")
	r.answers(pretend(&renames, extended(sftpwire.ExtPosixRename)))
	_, err := s.Put(t.Context(), "index/k", []byte("new"), store.PutOptions{})
	assert.Says(t, err, store.ErrConfig, "reports that it has renamed")
	assert.Equal(t, renames, 1)
	has(t, root, "index/", "index/k")
}

// TestPretendedDirectory: a Put fails if the server answers with success, and makes no directory.
func TestPretendedDirectory(t *testing.T) {
	root := repository(t, 0o700)
	r, made := &relay{}, 0
	s := r.on(t, root)
	r.answers(pretend(&made, func(req request) bool { return req.kind == typeMkdir }))
	_, err := s.Put(t.Context(), "index/k", []byte("new"), store.PutOptions{})
	assert.Says(t, err, store.ErrConfig, "reports that it has made the directory")
	assert.Equal(t, made, 1)
	has(t, root)
	r.answers(pretend(&made, func(req request) bool { return req.kind == typeRename }))
	_, err = s.Put(t.Context(), "index/k", []byte("new"), store.PutOptions{})
	assert.Says(t, err, store.ErrConfig, "reports that it has made the directory")
	assert.Equal(t, made, 2)
	has(t, root)
}

// TestPretendedDeletion: a deletion fails if the server answers with success, and removes nothing.
func TestPretendedDeletion(t *testing.T) {
	root := repository(t, 0o700)
	r, removals := &relay{}, 0
	s := r.on(t, root)
	put(t, s, "index/lock.intent/a", "index/lock.intent/b")
	r.answers(pretend(&removals, func(req request) bool { return req.kind == typeRemove && strings.HasSuffix(req.path(), "/a") }))
	assert.Says(t, s.Delete(t.Context(), "index/lock.intent/a"), errStill, "reports that it has removed")
	deleted, err := s.DeleteAll(t.Context(), []string{"index/lock.intent/a", "index/lock.intent/b"})
	assert.OK(t, err)
	assert.Equal(t, deleted, []bool{false, true})
	assert.Equal(t, removals, 2)
	has(t, root, "index/", "index/lock.intent/", "index/lock.intent/a")

	assert.OK(t, os.Mkdir(filepath.Join(root, "index/lock.dir"), 0o700))
	r.answers(pretend(&removals, func(req request) bool { return req.kind == typeRmdir }))
	assert.Is(t, s.Delete(t.Context(), "index/lock.dir/"), errStill)
}

// TestOccupied: a put is refused if a directory has its name, or if a file is in the place of a directory above it. That
// is no object, so no condition is unmet.
func TestOccupied(t *testing.T) {
	root := repository(t, 0o700)
	assert.OK(t, os.MkdirAll(filepath.Join(root, "index/k"), 0o700))
	assert.OK(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	r := &relay{}
	s := r.on(t, root)
	for _, opts := range []store.PutOptions{{}, {IfAbsent: true}} {
		for key, words := range map[string]string{"index/k": "is a directory", "file/k": "is not a directory", "file/a/k": "is not a directory"} {
			opens := r.seen(typeOpen)
			err := assert.Err(s.Put(t.Context(), key, nil, opts))
			assert.Says(t, err, store.ErrIrregular, words, key)
			assert.That(t, !errors.Is(err, store.ErrPrecondition), "%s: %v", key, err)
			assert.That(t, r.seen(typeOpen)-opens < 20, "%s: it is tried again and again", key)
		}
	}
	has(t, root, "file", "index/", "index/k/")
}

// TestReadBody: a read or a look that fails shows no body, which could be that of a released lock. A file of more than
// most bytes has no body.
func TestReadBody(t *testing.T) {
	answer := func(r *sftpwire.Request, a sftpwire.Answer) *sftpwire.Request {
		a.Answered = true
		r.Answer = a
		return r
	}
	failed := sftpwire.Answer{Status: sftpwire.Status{Code: sftpwire.Failure}}
	end := sftpwire.Answer{Status: sftpwire.Status{Code: sftpwire.EOF}}
	data := func(body string) sftpwire.Answer { return sftpwire.Answer{Data: []byte(body)} }
	size := func(n uint64) sftpwire.Answer {
		return sftpwire.Answer{Attrs: sftpwire.Attrs{Flags: sftpwire.HasSize, Size: n}}
	}
	for name, c := range map[string]struct {
		read, stat sftpwire.Answer
		body       string // or "-" for none
		err        error
	}{
		"whole":        {data("body"), size(4), "body", nil},
		"empty":        {end, size(0), "", nil},
		"cut":          {data("bo"), size(4), "bo", errMore},
		"too large":    {data("bod"), size(11), "-", nil},
		"unread":       {failed, size(0), "-", sftpwire.Failure},
		"no attribute": {data("body"), failed, "-", sftpwire.Failure},
	} {
		body, _, err := readBody(answer(sftpwire.Read("h", 0, 10), c.read), answer(sftpwire.Fstat("h"), c.stat), 10)
		assert.Is(t, err, c.err, name)
		assert.That(t, (body == nil) == (c.body == "-") && (body == nil || string(body) == c.body), "%s: %q", name, body)
	}
}
