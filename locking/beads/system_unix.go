//go:build unix

package beads

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// inode returns the inode number of a file. Another file can get it when no process has the file open.
func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// stamp returns the ctime of an open file. Programs can change it only by setting the machine's clock.
func stamp(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return st.Ctim.Nano(), nil
}
