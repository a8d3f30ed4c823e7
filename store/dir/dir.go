package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// Store is a store in a directory. Its methods can be called concurrently. It keeps no file open between two calls,
// except for a store.Sharing until its end. So it has no Close, and an idle store doesn't keep a disk mounted.
type Store struct {
	path   string      // absolute
	opened fs.FileInfo // attributes of path, when it was opened

	local bool // the file system is known to be this machine's own
	flock bool // its directories can be locked
	hides bool // an open directory might show no name that came after it was opened: see quietNames

	fileMode, dirMode fs.FileMode

	// Tests replace these.
	now  func() time.Time // returns this machine's time, by which the kernel stamps the files of a local file system
	move func(step func(from, to string) error, from, to string) error
	sync func(f *os.File) error
	scan func(ctx context.Context, d *directory, wanted files.Wanted) ([]string, error)
	// stamps returns when a directory was last changed, and the present time of the clock that stamps a change.
	stamps func(d *directory) (changed, now time.Time, err error)
}

var _ store.Store = (*Store)(nil)

// Open returns the store in an existing directory, without writing to it. The error is
// store.ErrNotFound if there is no directory at path.
func Open(ctx context.Context, path string) (*Store, error) {
	s, err := open(ctx, path)
	return s, failed("open", shorten(path), err)
}

// aFile is the advice about a name that isn't a directory's.
const aFile = "the name belongs to a file: name the directory that has the repository"

func open(ctx context.Context, path string) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if path == "" {
		return nil, fmt.Errorf("%w: empty path", store.ErrNotFound)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("can't find the working directory: %w", err)
	}
	info, err := os.Stat(path)
	switch {
	case absent(err):
		return nil, fault.New(store.ErrNotFound, "there is no such directory")
	case errors.Is(err, syscall.ENAMETOOLONG):
		err = fault.As(errors.Join(store.ErrNotFound, err), errors.New("its name is too long"))
		return nil, fault.Advise(err, "check the path: a name in it has at most 255 bytes, and a whole path some 4,000")
	case err != nil:
		return nil, cant("open", path, err)
	case !info.IsDir():
		return nil, fault.Advise(fault.New(store.ErrNotFound, "not a directory"), aFile)
	}
	s := &Store{path: path, opened: info, now: time.Now, move: move, sync: (*os.File).Sync, scan: scan, stamps: stamps}
	shared := info.Mode().Perm() & 0o077 // the permissions of the group and of others
	s.fileMode, s.dirMode = 0o600|shared&0o066, 0o700|shared|info.Mode()&fs.ModeSetgid

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
	s.hides = s.local && !showsNew(self)
	return s, nil
}

// Properties returns the properties of the file system.
func (s *Store) Properties() store.Properties {
	// On a network file system the clock of the writing machine can set the mod time. Ceph, Lustre and NFS delegations
	// let the client do so, and so do some FUSE file systems.
	p := store.Properties{Name: "dir", IfAbsent: store.Claimed, IfMatch: store.Unsupported, StoreClock: s.local, MachineClock: s.local}
	if s.local {
		p.IfAbsent = store.Kept
	}
	switch {
	case s.flock && s.local:
		p.IfMatch = store.Kept
	case s.flock:
		p.IfMatch = store.Claimed // the flock might bind only the programs on this machine
	}
	p.DeleteIfMatch = p.IfMatch
	return p
}

// open opens the repository's directory, anew for each request. If it stayed open, writes would still go to it after
// another directory has taken its place, and the disk couldn't be unmounted.
func (s *Store) open() (*directory, error) {
	info, err := os.Stat(s.path) // Stat first, because os.OpenRoot would wait for the writer of a pipe
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
	// If the disk is unmounted, its mount point is a directory on another file system.
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

// gone returns an error if root is no longer the repository's directory.
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
