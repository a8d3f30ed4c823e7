//go:build unix

package beads

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// inode returns the number of a file, which another file can have after its end.
func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// change is when the system last changed a file or its inode. No program sets it, except by the
// machine's clock.
type change struct{ sec, nsec int64 }

// stamp returns the last change of an open file.
func stamp(f *os.File) (change, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return change{}, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	sec, nsec := st.Ctim.Unix()
	return change{sec, nsec}, nil
}

// nonblock keeps the opening of a pipe from waiting for the other end.
const nonblock = syscall.O_NONBLOCK

// isNoLinks reports whether an error is that of a file system without hard links (FAT).
func isNoLinks(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, errors.ErrUnsupported)
}
