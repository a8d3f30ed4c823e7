//go:build unix

package beads

import (
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

// stamp returns when the system last changed an open file or its inode. No program sets it, except
// by the machine's clock.
func stamp(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return st.Ctim.Nano(), nil
}
