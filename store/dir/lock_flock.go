//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package dir

import (
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes the flock if nobody has it.
func tryLock(f *os.File) (bool, error) {
	err := control(f, func(fd int) error {
		for {
			if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != unix.EINTR {
				return err
			}
		}
	})
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

func unlock(f *os.File) {
	_ = control(f, func(fd int) error { return unix.Flock(fd, unix.LOCK_UN) })
}
