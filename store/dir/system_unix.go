//go:build unix

package dir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/store"
)

// nonblock makes an open of a pipe return at once.
const nonblock = syscall.O_NONBLOCK

// anyName is true, because a file's name can have any byte except a slash and NUL.
const anyName = true

// unfit returns why a valid element of a key can't be a file's name, or "". On this system it always can.
func unfit(string) string { return "" }

var (
	noSpace  = []error{syscall.ENOSPC, syscall.EDQUOT}
	readOnly = []error{syscall.EROFS}
	// unreachable are the errors of a network file system whose server doesn't answer: NFS that is mounted soft, SMB,
	// FUSE whose process is dead. ESTALE isn't one of them, because with ESTALE the server does answer.
	unreachable = []error{
		syscall.ENOTCONN, syscall.ETIMEDOUT, syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED,
	}
	// noLinks are the errors of a file system without hard links (EIO: rclone; EACCES: Android; ERANGE: cryfs; EMLINK,
	// EXDEV and EINVAL: some NAS). If such an error has another cause, the rename that follows fails too.
	noLinks = []error{syscall.EPERM, errors.ErrUnsupported, syscall.EACCES, syscall.EIO, syscall.EMLINK, syscall.EXDEV, syscall.EINVAL, syscall.ERANGE}
)

// own gives a new file the owner and the group of its folder, and its mode whatever the umask, because some programs
// ignore a lock that they can't read. It ignores a refusal of the system: only root may give files away, and some file
// systems have neither owners nor modes.
func own(f *os.File, folder fs.FileInfo, mode fs.FileMode) {
	info, err := f.Stat()
	if err != nil {
		return
	}
	is, ok := info.Sys().(*syscall.Stat_t)
	above, ok1 := folder.Sys().(*syscall.Stat_t)
	if ok && ok1 && is.Gid != above.Gid {
		_ = f.Chown(-1, int(above.Gid))
	}
	if ok && ok1 && is.Uid == 0 && above.Uid != 0 && os.Geteuid() == 0 {
		_ = f.Chown(int(above.Uid), -1)
	}
	if info.Mode()&(fs.ModePerm|fs.ModeSetgid) != mode {
		_ = f.Chmod(mode)
	}
}

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino)
	}
	return 0
}

// sameFileSystem reports whether two directories are on one device. It doesn't compare the inodes, because a user can
// restore a repository, or replace it by a copy, while a program waits for its lock.
func sameFileSystem(a, b fs.FileInfo) bool {
	was, ok1 := a.Sys().(*syscall.Stat_t)
	is, ok2 := b.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && was.Dev == is.Dev
}

// rmdir removes an empty directory. os.Root.Remove would also remove an object that has replaced the directory.
func rmdir(d *directory, name string) error {
	return withFd(d, func(fd int) error { return cant("delete from", d.path, unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)) })
}

// renameNoReplace replaces link(2) on file systems without hard links (FAT, exFAT).
func renameNoReplace(d *directory, from, to string) error {
	err := withFd(d, func(fd int) error { return cant("write into", d.path, renameExclusive(fd, from, to)) })
	if isOneOf(err, noLinks) { // if the cause is another one, the put without the condition fails too
		return store.ErrConditionUnsupported
	}
	return taken(d, to, err)
}

// Exchange makes two files of the directory change places.
func (d *directory) Exchange(a, b string) error {
	return withFd(d, func(fd int) error { return cant("write into", d.path, renameExchange(fd, a, b)) })
}

// withFd runs a system call on the descriptor of a directory. It is for calls that os.Root doesn't have.
func withFd(d *directory, call func(fd int) error) error {
	self, err := d.Open(".")
	if err != nil {
		return err
	}
	defer self.Close()
	return call(int(self.Fd()))
}

func (s *Store) syncDir(root *directory, dir string) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.sync(f); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return cant("write into", filepath.Join(root.path, dir), err)
	}
	return nil // this file system can't sync a directory (some FUSE, SMB)
}
