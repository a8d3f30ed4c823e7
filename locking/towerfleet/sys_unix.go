//go:build unix

package towerfleet

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// owner returns the uid of a file's owner.
func owner(info os.FileInfo) (uid int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

func errno(err error) (name, message string) {
	var e unix.Errno
	if !errors.As(err, &e) {
		return "", ""
	}
	return unix.ErrnoName(e), e.Error()
}
