//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

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

func readOnly(err error) bool { return errors.Is(err, unix.EROFS) }

// noFollow makes an open fail at a symbolic link, and return at once at a FIFO.
const noFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

func errno(err error) (name, message string) {
	var e unix.Errno
	if !errors.As(err, &e) {
		return "", ""
	}
	return unix.ErrnoName(e), e.Error()
}

// noLinks reports whether a link failed because the file system has none.
func noLinks(err error) bool {
	for _, e := range []error{unix.EPERM, unix.ENOTSUP, unix.EOPNOTSUPP, unix.ENOSYS, unix.EMLINK} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// noSwap reports whether a swap failed because the kernel or the file system has none.
func noSwap(err error) bool {
	for _, e := range []error{errors.ErrUnsupported, unix.EINVAL, unix.ENOSYS, unix.ENOTSUP, unix.EOPNOTSUPP} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
