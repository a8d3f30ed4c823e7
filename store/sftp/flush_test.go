//go:build unix

package sftp

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// flushing is a relay whose server has fsync@openssh.com. It notes what comes in which order: the writes, the flushes,
// each CLOSE of a temporary file, and the moves. The answer to a flush is a status, which flush returns.
type flushing struct {
	relay
	root   string
	noted  []string
	paths  map[string]string // by handle
	opens  map[uint32]string // by id
	status func(what string) sftpwire.Code
}

func newFlushing(root string) *flushing {
	f := &flushing{root: root, paths: map[string]string{}, opens: map[uint32]string{}, status: func(string) sftpwire.Code { return sftpwire.OK }}
	f.edits(f.handle)
	f.answers(f.note)
	return f
}

// handle adds the extension to the server's VERSION, and notes its handles.
func (f *flushing) handle(p []byte) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch id := uint32(p[5])<<24 | uint32(p[6])<<16 | uint32(p[7])<<8 | uint32(p[8]); p[4] {
	case typeVersion:
		return bare(string(p[4:]) + field(sftpwire.ExtFsync) + field("1"))
	case 102:
		f.paths[string(p[13:])] = f.opens[id]
	}
	return p
}

// short returns a path below the root, or "temp" for a temporary name.
func (f *flushing) short(path string) string {
	if files.IsTemp(filepath.Base(path)) {
		return "temp"
	}
	short, _ := strings.CutPrefix(filepath.Clean(path), f.root)
	return "/" + strings.TrimPrefix(short, "/")
}

func (f *flushing) note(req request) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch req.kind {
	case typeOpen:
		f.opens[req.id] = f.short(req.path())
	case typeWrite, typeClose:
		if what := f.paths[req.path()]; req.kind == typeWrite {
			f.noted = append(f.noted, "write "+what)
		} else if what == "temp" {
			f.noted = append(f.noted, "close "+what)
		}
	case typeExtended:
		first := req.path()
		second := request{body: req.body[4+len(first):]}.path()
		switch first {
		case sftpwire.ExtFsync:
			what := f.paths[second]
			f.noted = append(f.noted, "flush "+what)
			return status(req.id, f.status(what))
		case sftpwire.ExtPosixRename, sftpwire.ExtHardlink:
			if to := (request{body: req.body[4+len(first)+4+len(second):]}).path(); f.short(to) != "temp" { // else a link that is tried out
				f.noted = append(f.noted, "move "+f.short(second))
			}
		}
	}
	return nil
}

// TestFlushes: a put that was answered is on the server's disk. The body is flushed after it is written, through the
// handle that wrote it, and before it has its name. Then each folder is flushed that the name needs.
func TestFlushes(t *testing.T) {
	for _, opts := range []store.PutOptions{{}, {Durable: true}, {IfAbsent: true}} {
		root := repository(t, 0o700)
		f := newFlushing(root)
		s := f.on(t, root)
		for _, key := range []string{"index/lock.shared/a", "index/lock.shared/b"} { // the first makes the folders
			f.noted = nil
			_, err := s.Put(t.Context(), key, []byte("body"), opts)
			assert.OK(t, err)
			f.mu.Lock()
			assert.Equal(t, f.noted, []string{"write temp", "flush temp", "close temp", "move temp", "flush /index/lock.shared", "flush /index", "flush /"}, fmt.Sprintf("%+v", opts))
			f.mu.Unlock()
		}
	}
}

// TestFlushRefused: a body that isn't flushed gets no name, and the error names fsync. A file system that can't flush a
// folder is no failure.
func TestFlushRefused(t *testing.T) {
	root := repository(t, 0o700)
	f := newFlushing(root)
	s := f.on(t, root)
	put(t, s, "index/a")
	refused := 0
	f.status = func(what string) sftpwire.Code {
		if what == "temp" && refused == 0 {
			refused++
			return sftpwire.Failure
		}
		return sftpwire.OK
	}
	for _, opts := range []store.PutOptions{{}, {IfAbsent: true}} {
		refused = 0
		_, err := s.Put(t.Context(), "index/b", []byte("body"), opts)
		assert.Says(t, err, sftpwire.Failure, "flushing a file to the server's disk (fsync): failure")
		has(t, root, "index/", "index/a")
	}
	f.status = func(what string) sftpwire.Code {
		if what == "temp" {
			return sftpwire.OK
		}
		return sftpwire.Failure
	}
	put(t, s, "index/b")
}

// TestWithoutFlush: on a file system without fsync objects are stored as by a server without fsync@openssh.com. A failure
// counts only if the server also refuses to flush an empty file. The connection remembers that, and doctor can name it.
func TestWithoutFlush(t *testing.T) {
	for _, code := range []sftpwire.Code{sftpwire.Failure, sftpwire.BadMessage, sftpwire.OpUnsupported} {
		root := repository(t, 0o700)
		f := newFlushing(root)
		f.status = func(string) sftpwire.Code { return code }
		s := f.on(t, root)
		put(t, s, "index/a")
		assert.OK(t, assert.Err(s.Put(t.Context(), "index/b", []byte("body"), store.PutOptions{IfAbsent: true})))
		has(t, root, "index/", "index/a", "index/b")
		f.mu.Lock()
		f.noted = nil
		f.mu.Unlock()
		put(t, s, "index/a")
		assert.Equal(t, f.noted, []string{"write temp", "close temp", "move temp"})
		d, err := s.Describe(t.Context())
		assert.OK(t, err)
		assert.That(t, strings.Contains(d.Server, "refuses to flush a file (fsync)"), "%q", d.Server)
	}
}
