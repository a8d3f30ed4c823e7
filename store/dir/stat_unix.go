//go:build unix

package dir

import (
	"io/fs"
	"syscall"
)

// nonblock keeps the opening of a pipe from waiting for the other end.
const nonblock = syscall.O_NONBLOCK

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino)
	}
	return 0
}

// sameFileSystem doesn't compare the inodes: a repository may be restored, or
// be replaced by a copy, while a program waits for its lock.
func sameFileSystem(a, b fs.FileInfo) bool {
	was, ok1 := a.Sys().(*syscall.Stat_t)
	is, ok2 := b.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && was.Dev == is.Dev
}
