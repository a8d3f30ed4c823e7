//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package dir

import (
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes the flock if it is free.
func tryLock(f *os.File) (bool, error) {
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

func unlock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
