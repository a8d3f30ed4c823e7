//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package towerfleet

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const hasFlock = true

// tryFlock takes the flock of an open file if it is free.
func tryFlock(f *os.File) (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return false, nil
		default:
			return err == nil, err
		}
	}
}

// unflock frees the flock of an open file and closes it. A close alone doesn't free it while a
// process that this one is starting still has the file.
func unflock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	f.Close()
}

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
