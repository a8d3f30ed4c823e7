//go:build unix

package sftp

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// dirAttrs is the answer to a Stat of a directory.
func dirAttrs(id uint32, flags, size int) []byte {
	body := u32(flags)
	if flags&sftpwire.HasSize != 0 {
		body += u32(0) + u32(size)
	}
	if flags&sftpwire.HasOwner != 0 {
		body += u32(0) + u32(0)
	}
	return reply(typeAttrs, id, body+u32(sftpwire.KindDir|0o755))
}

const hasSizeAndPerm = sftpwire.HasSize | sftpwire.HasPerm

// TestRclone: a server that looks like rclone's is refused, because it shows the locks of other machines minutes late. A
// server that lacks one of the signs isn't. If the user vouches for the server, locks are kept there.
func TestRclone(t *testing.T) {
	for name, c := range map[string]struct {
		flags, size int
		space       func(id uint32) []byte
		edit        func([]byte) []byte
		refused     bool
	}{
		"rclone":         {hasSizeAndPerm, 0, nil, nil, true},
		"with an owner":  {hasSizeAndPerm | sftpwire.HasOwner, 0, nil, nil, false},
		"with a size":    {hasSizeAndPerm, 4096, nil, nil, false},
		"with statvfs":   {hasSizeAndPerm, 0, func(id uint32) []byte { return space(id, 500, 0) }, nil, false},
		"rclone 1.76":    {hasSizeAndPerm, 0, func(id uint32) []byte { return statvfs(id, 4096, 1e9) }, nil, true},
		"as sshfs":       {hasSizeAndPerm, 0, func(id uint32) []byte { return statvfs(id, 512, 1e9) }, nil, false},
		"that fails":     {hasSizeAndPerm, 0, func(id uint32) []byte { return status(id, sftpwire.Failure) }, nil, false},
		"without a name": {hasSizeAndPerm, 0, nil, without(sftpwire.ExtStatvfs), false},
	} {
		root := repository(t, 0o700)
		assert.OK(t, os.Mkdir(filepath.Join(root, "index"), 0o700))
		answer := func(r request) []byte {
			switch {
			case r.kind == typeStat:
				return dirAttrs(r.id, c.flags, c.size)
			case r.kind == typeExtended && r.path() == sftpwire.ExtStatvfs && c.space != nil:
				return c.space(r.id)
			case r.kind == typeExtended && r.path() == sftpwire.ExtStatvfs:
				return status(r.id, sftpwire.OpUnsupported)
			}
			return nil
		}
		for _, fresh := range []bool{false, true} {
			r := &relay{answer: answer, edit: c.edit, fresh: fresh}
			s := r.on(t, root)
			_, err := s.List(t.Context(), "", "")
			assert.Equal(t, err != nil, c.refused && !fresh, name)
			assert.Equal(t, r.seen(typeOpen), 0, name) // rclone writes each file back that is opened
			_, err = s.Put(t.Context(), "index/k", nil, store.PutOptions{})
			if c.refused && !fresh {
				assert.Says(t, err, store.ErrConfig, "looks like rclone serve sftp, which shows the locks of other machines minutes late")
				assert.That(t, strings.Contains(fault.Advice(err), "listings=fresh"), "%q", fault.Advice(err))
				assert.Is(t, assert.Err(s.List(t.Context(), "", "")), store.ErrConfig)
				has(t, root, "index/")
				continue
			}
			assert.Is(t, err, nil, "%s", name)
			opens := 3 // the lock, and two files for a clock
			if c.refused {
				opens = 1
			}
			assert.Equal(t, r.seen(typeOpen), opens, name)
			p, err := s.List(t.Context(), "", "")
			assert.OK(t, err)
			assert.Equal(t, p.Now.IsZero(), c.refused, name)
			d, err := s.Describe(t.Context())
			assert.OK(t, err)
			assert.Equal(t, d.Server != "", c.refused, name)
			assert.OK(t, s.Delete(t.Context(), "index/k"))
			has(t, root, "index/")
		}
	}
}

// statvfs is the answer to a statvfs, with these blocks and files.
func statvfs(id uint32, block, files int) []byte {
	body := ""
	for _, n := range []int{4096, block, 1000, 500, 500, files, 0, 0, 0, 0, 255} {
		body += u32(0) + u32(n)
	}
	return reply(typeExtendedReply, id, body)
}

// TestMountOfRclone: a directory in a mount of rclone is refused, as store/dir refuses it, whatever the URL says.
func TestMountOfRclone(t *testing.T) {
	for _, c := range []struct {
		files, block, size int
		refused            bool
	}{{1e9, 4096, 0, true}, {1e9, 512, 0, false}, {1e9, 4096, 40, false}, {1e9 - 1, 4096, 0, false}} {
		for _, fresh := range []bool{false, true} {
			r := &relay{fresh: fresh}
			r.answers(func(req request) []byte {
				switch {
				case req.kind == typeStat:
					return dirAttrs(req.id, hasSizeAndPerm|sftpwire.HasOwner, c.size)
				case req.kind == typeExtended && req.path() == sftpwire.ExtStatvfs:
					return statvfs(req.id, c.block, c.files)
				}
				return nil
			})
			err := assert.Err(r.on(t, repository(t, 0o700)).List(t.Context(), "", ""))
			if c.refused {
				assert.Says(t, err, store.ErrConfig, "in a mount of rclone, which shows the locks of other machines minutes late")
			} else {
				assert.Is(t, err, nil, "%v", c)
			}
		}
	}
}

// TestOptions: a URL's options are command= and listings=fresh, each once.
func TestOptions(t *testing.T) {
	for query, want := range map[string]target{
		"": {}, "listings=fresh": {fresh: true}, "command=x": {command: []string{"sh", "-c", "exec x"}},
		"command=x+-y&listings=fresh": {command: []string{"sh", "-c", "exec x -y"}, fresh: true},
	} {
		got, err := parse(&url.URL{Scheme: "sftp", Host: "h", Path: "/x", RawQuery: query})
		assert.OK(t, err)
		assert.Equal(t, got.fresh, want.fresh, query)
		assert.That(t, want.command == nil || slices.Equal(got.command, want.command), "%s: %q", query, got.command)
	}
	for _, query := range []string{"listings=", "listings=cached", "listings=fresh&listings=fresh", "listing=fresh", "command=+"} {
		_, err := parse(&url.URL{Scheme: "sftp", Host: "h", Path: "/x", RawQuery: query})
		assert.Says(t, err, store.ErrURL, "listings=fresh", query)
	}
}
