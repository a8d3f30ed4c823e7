package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// Options of a store. The zero value suits every program.
type Options struct {
	// Now is the clock of this machine's kernel, which stamps the files of a
	// local file system; time.Now if nil.
	Now func() time.Time
}

// Store is a store in a directory. Its methods can be called concurrently. It keeps no file
// open, so that it needs no closing, and a disk can be unmounted while it is idle.
type Store struct {
	path   string // absolute, so that a change of the working directory changes nothing
	now    func() time.Time
	opened fs.FileInfo // of path, when it was opened

	local bool // the file system is known to be this machine's own
	flock bool // its directories can be locked

	fileMode, dirMode fs.FileMode

	move func(d *directory, from, to string) error // Rename
	scan func(ctx context.Context, d *directory, wanted func(name string) bool) ([]string, error)
	last atomic.Pointer[scans] // of the listing that has returned a page last, unless that was its last one
}

var _ store.Store = (*Store)(nil)

// Open returns the store in an existing directory, without writing to it. The error is
// store.ErrNotFound if there is no directory at path.
func Open(ctx context.Context, path string, opts Options) (*Store, error) {
	s, err := open(ctx, path, opts)
	return s, failed("open", shown(path), err)
}

func open(ctx context.Context, path string, opts Options) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if path == "" {
		return nil, fmt.Errorf("%w: empty path", store.ErrNotFound)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("the directory that this was called in can't be found: %w", err)
	}
	info, err := os.Stat(path)
	switch {
	case absent(err):
		return nil, fault.New(store.ErrNotFound, "there is no such directory")
	case errors.Is(err, syscall.ENAMETOOLONG):
		return nil, classed(errors.New("its name is too long"), store.ErrNotFound, err)
	case err != nil:
		return nil, cant("open", path, err)
	case !info.IsDir():
		return nil, fault.New(store.ErrNotFound, "not a directory")
	}
	s := &Store{path: path, now: opts.Now, opened: info, move: (*directory).Rename, scan: scan}
	if s.now == nil {
		s.now = time.Now
	}
	s.fileMode, s.dirMode = modes(info.Mode())

	root, err := s.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	self, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	if name := mountType(self); late[name] != "" {
		return nil, fmt.Errorf("%w: a mount of %s %s: "+
			"mount the directory by sshfs, or use the URL of the storage itself (s3:, b2:, minio:)", store.ErrConfig, name, late[name])
	}
	s.local = isLocal(self)
	s.flock = canLock(self)
	return s, nil
}

// Properties returns what Open has found out of the file system.
func (s *Store) Properties() store.Properties {
	// On a network file system mtime may be what the writing machine's clock
	// said: Ceph, Lustre and NFS delegations leave it to the client, and some
	// FUSE file systems store it as the client gives it.
	p := store.Properties{Name: "dir", IfAbsent: store.Claimed, IfMatch: store.Unsupported, StoreClock: s.local, MachineClock: s.local}
	if s.local {
		p.IfAbsent = store.Kept
	}
	switch {
	case s.flock && s.local:
		p.IfMatch = store.Kept
	case s.flock:
		p.IfMatch = store.Claimed // it might bind this machine only
	}
	p.DeleteIfMatch = p.IfMatch
	return p
}

// open opens the repository's directory, anew for every request: an open one
// would still be written to after it was moved away and another put in its
// place, and would keep a disk from being unmounted.
func (s *Store) open() (*directory, error) {
	info, err := os.Stat(s.path) // since os.OpenRoot would wait for ever for a pipe's writer
	if absent(err) || err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%w: the repository's directory %s is gone", store.ErrNotFound, s.path)
	}
	if err != nil {
		return nil, cant("open", s.path, err)
	}
	opened, err := os.OpenRoot(s.path)
	if err != nil {
		return nil, cant("open", s.path, err)
	}
	root := &directory{opened, s.path}
	// Once a disk is unmounted, its mount point is there: a directory on another file system.
	info, err = root.Lstat(".")
	if err == nil && !sameFileSystem(s.opened, info) {
		err = fmt.Errorf("%w: %s is no longer on the file system that it was opened on", store.ErrNotFound, s.path)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// gone returns an error if the root that a request works in is no longer the
// repository's.
func (s *Store) gone(root *directory) error {
	again, err := s.open()
	if err != nil {
		return err
	}
	defer again.Close()
	was, err1 := root.Lstat(".")
	is, err2 := again.Lstat(".")
	if err := cmp.Or(err1, err2); err != nil {
		return err
	}
	if !os.SameFile(was, is) {
		return fmt.Errorf("%w: the repository's directory %s was replaced", store.ErrNotFound, s.path)
	}
	return nil
}

// modes returns the modes of files and directories: the permissions of the repository's
// directory for its owner, its group and others.
func modes(repository fs.FileMode) (file, dir fs.FileMode) {
	shared := repository.Perm() & 0o077
	return 0o600 | shared&0o066, 0o700 | shared | repository&fs.ModeSetgid
}
