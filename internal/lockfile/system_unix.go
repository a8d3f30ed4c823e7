//go:build unix

package lockfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// noFollow makes an open fail at a symbolic link, and return at once at a pipe.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// Owner returns the uid of a file's owner.
func Owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// Inode returns the inode number of a file. Another file can get it when no process has the file open.
func Inode(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// Changed returns the ctime of an open file. A program can set it only by setting the machine's clock.
func Changed(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return st.Ctim.Nano(), nil
}

// Errno returns the name and the text of a system's error: "EACCES", "permission denied".
func Errno(err error) (name, text string) {
	var e unix.Errno
	if !errors.As(err, &e) {
		return "", ""
	}
	return unix.ErrnoName(e), e.Error()
}
