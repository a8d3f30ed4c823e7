package sftpwire

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pkg/sftp"

	"github.com/repolock/repolock/internal/test/assert"
)

// remote is a client of a server on this machine's files.
type remote struct {
	t *testing.T
	*Client
	dir string // an empty directory
}

// do sends requests that must succeed, and returns the last.
func (r remote) do(reqs ...*Request) *Request {
	r.t.Helper()
	assert.OK(r.t, r.Do(r.t.Context(), reqs...))
	for i, req := range reqs {
		if err := req.Err(); err != nil {
			r.t.Errorf("request %d of %d, of type %d: %v", i+1, len(reqs), req.kind, err)
		}
	}
	return reqs[len(reqs)-1]
}

// refused sends a request that must fail with one of the codes.
func (r remote) refused(req *Request, codes ...Code) {
	r.t.Helper()
	assert.OK(r.t, r.Do(r.t.Context(), req))
	if !slices.ContainsFunc(codes, func(c Code) bool { return errors.Is(req.Err(), c) }) {
		r.t.Errorf("request of type %d: %v, want one of %v", req.kind, req.Err(), codes)
	}
}

// store writes a new file.
func (r remote) store(path, body string) {
	r.t.Helper()
	h := r.do(Open(path, FlagWrite|FlagCreate|FlagExcl, 0o640)).Handle
	r.do(Write(h, 0, []byte(body)), Fstat(h), Close(h))
}

func (r remote) load(path string) string {
	r.t.Helper()
	h := r.do(Open(path, FlagRead, 0)).Handle
	read, end := Read(h, 0, 4096), Read(h, 4096, 1)
	assert.OK(r.t, r.Do(r.t.Context(), read, end, Close(h)))
	assert.Is(r.t, end.Err(), EOF)
	return string(read.Data)
}

// contract checks each request with a server.
func contract(t *testing.T, c *Client, dir string) {
	r := remote{t, c, dir}
	t.Run("files", func(t *testing.T) { r.t = t; r.files() })
	t.Run("attributes", func(t *testing.T) { r.t = t; r.attributes() })
	t.Run("directories", func(t *testing.T) { r.t = t; r.directories() })
	t.Run("names", func(t *testing.T) { r.t = t; r.names() })
	t.Run("extensions", func(t *testing.T) { r.t = t; r.extensions() })
	t.Run("order", func(t *testing.T) { r.t = t; r.order() })
	t.Run("concurrent", func(t *testing.T) { r.t = t; r.concurrent() })
	assert.OK(t, c.Err())
}

func (r remote) files() {
	a := r.dir + "/a"
	r.store(a, "body of a")
	assert.Equal(r.t, r.load(a), "body of a")
	r.refused(Open(a, FlagWrite|FlagCreate|FlagExcl, 0o640), Failure)
	assert.Equal(r.t, r.load(a), "body of a")
	r.refused(Open(r.dir+"/none", FlagRead, 0), NoSuchFile)
	h := r.do(Open(a, FlagWrite|FlagTrunc, 0)).Handle
	r.do(Write(h, 0, []byte("new")), Write(h, 3, []byte("er")), Close(h))
	assert.Equal(r.t, r.load(a), "newer")
	r.do(Remove(a))
	r.refused(Remove(a), NoSuchFile)
}

func (r remote) attributes() {
	a, link := r.dir+"/a", r.dir+"/link"
	r.store(a, "123")
	assert.OK(r.t, os.Symlink(a, link))
	info, err := os.Stat(a)
	assert.OK(r.t, err)
	h := r.do(Open(a, FlagRead|FlagWrite, 0)).Handle
	for _, got := range []Attrs{r.do(Lstat(a)).Attrs, r.do(Stat(a)).Attrs, r.do(Stat(link)).Attrs, r.do(Fstat(h)).Attrs} {
		assert.That(r.t, got.Flags&(HasSize|HasPerm|HasTimes) == HasSize|HasPerm|HasTimes, "%+v", got)
		assert.Equal(r.t, []any{got.Size, got.Kind(), int64(got.Mtime)}, []any{uint64(3), uint32(KindRegular), info.ModTime().Unix()})
	}
	if kind := r.do(Lstat(link)).Attrs.Kind(); kind != KindLink {
		assert.Equal(r.t, kind, uint32(KindRegular), "the link's target, which ProFTPD shows instead")
	}
	assert.Equal(r.t, r.do(Lstat(r.dir)).Attrs.Kind(), uint32(KindDir))
	r.do(Setstat(a, Attrs{Flags: HasPerm, Perm: 0o600}), Fsetstat(h, Attrs{Flags: HasTimes, Atime: 5, Mtime: 6}))
	got := r.do(Lstat(a)).Attrs
	assert.Equal(r.t, []uint32{got.Perm & 0o777, got.Mtime}, []uint32{0o600, 6})
	r.do(Close(h))
	r.refused(Lstat(r.dir+"/none"), NoSuchFile)
	r.refused(Stat(r.dir+"/none"), NoSuchFile)
	r.do(Remove(link), Remove(a))
}

func (r remote) directories() {
	d := r.dir + "/d"
	r.do(Mkdir(d, 0o750))
	r.refused(Mkdir(d, 0o750), Failure)
	want := []string{".", ".."}
	for i := range 300 { // more than one answer has
		name := fmt.Sprintf("%03d", i)
		assert.OK(r.t, os.WriteFile(filepath.Join(d, name), []byte(name), 0o600))
		want = append(want, name)
	}
	r.refused(Rmdir(d), Failure)
	var names []string
	h := r.do(Opendir(d)).Handle
	for end := false; !end; {
		some, more := Readdir(h), Readdir(h)
		assert.OK(r.t, r.Do(r.t.Context(), some, more))
		for _, req := range []*Request{some, more} {
			for _, e := range req.Names {
				names = append(names, e.Name)
				assert.That(r.t, e.Name[0] == '.' || e.Attrs.Size == 3, "%+v", e)
			}
		}
		end = errors.Is(more.Err(), EOF)
	}
	r.do(Close(h))
	slices.Sort(names)
	names = slices.DeleteFunc(names, func(name string) bool { return name[0] == '.' }) // some servers don't send them
	assert.Equal(r.t, names, want[2:])
	assert.OK(r.t, os.RemoveAll(d))
	r.do(Mkdir(d, 0o750), Rmdir(d))
	r.refused(Opendir(d), NoSuchFile)
	names = nil
	for _, e := range r.do(Realpath(r.dir + "/.")).Names {
		names = append(names, e.Name)
	}
	assert.Equal(r.t, names, []string{r.dir})
}

func (r remote) names() {
	a, b := r.dir+"/a", r.dir+"/b"
	r.store(a, "of a")
	r.do(Rename(a, b))
	r.refused(Lstat(a), NoSuchFile)
	assert.Equal(r.t, r.load(b), "of a")
	r.refused(Rename(a, r.dir+"/c"), NoSuchFile)
	r.do(Remove(b))
}

func (r remote) extensions() {
	a, b := r.dir+"/a", r.dir+"/b"
	r.store(a, "of a")
	for name, try := range map[string]func(){
		ExtHardlink: func() {
			r.do(Hardlink(a, b))
			assert.Equal(r.t, r.load(b), r.load(a))
			r.refused(Hardlink(a, b), Failure)
			r.do(Remove(b))
		},
		ExtPosixRename: func() {
			r.store(b, "of b")
			r.do(PosixRename(b, a))
			assert.Equal(r.t, r.load(a), "of b")
		},
		ExtFsync: func() {
			h := r.do(Open(a, FlagWrite, 0)).Handle
			r.do(Fsync(h), Close(h))
		},
		ExtStatvfs: func() {
			s := r.do(Space(r.dir)).Statvfs
			assert.That(r.t, s.Bsize > 0 && s.Blocks > 0 && s.Namemax >= 255, "%+v", s)
		},
	} {
		if _, ok := r.Extension(name); ok {
			try()
		} else {
			r.t.Logf("%s: no such extension", name)
		}
	}
	r.refused(of(typeExtended, typeStatus).string("none@repolock").string(r.dir), OpUnsupported)
	r.do(Remove(a))
}

// order checks that the requests of one write happen in order.
func (r remote) order() {
	a, b := r.dir+"/a", r.dir+"/b"
	for i := range 50 {
		h := r.do(Open(a, FlagWrite|FlagCreate|FlagExcl, 0o600)).Handle
		body := strings.Repeat("x", 1+i*100)
		stat := Lstat(b)
		r.do(Write(h, 0, []byte(body)), Close(h), Rename(a, b), stat, Remove(b))
		assert.Equal(r.t, stat.Attrs.Size, uint64(len(body)))
	}
}

func (r remote) concurrent() {
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			path := fmt.Sprintf("%s/%d", r.dir, i)
			for range 10 {
				stat := Lstat(path)
				open := Open(path, FlagWrite|FlagCreate|FlagExcl, 0o600)
				if err := errors.Join(r.Do(r.t.Context(), open), open.Err()); err != nil {
					r.t.Error(err)
					return
				}
				h := open.Handle
				err := r.Do(r.t.Context(), Write(h, 0, make([]byte, i)), Close(h), stat, Remove(path))
				if err != nil || stat.Attrs.Size != uint64(i) {
					r.t.Errorf("%s: %+v, %v", path, stat.Answer, err)
				}
			}
		})
	}
	all.Wait()
}

// TestPkgSFTP: the contract holds with the server of github.com/pkg/sftp.
func TestPkgSFTP(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the server's paths begin with a drive")
	}
	ours, theirs := net.Pipe()
	server, err := sftp.NewServer(theirs)
	assert.OK(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	c, err := New(t.Context(), ours)
	assert.OK(t, err)
	contract(t, c, t.TempDir())
	c.Close()
	<-ended
}
