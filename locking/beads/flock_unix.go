//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package beads

import (
	"os"

	"golang.org/x/sys/unix"
)

// systemFlock takes the flock if it is free. It returns an error if this file system has none.
func systemFlock(f *os.File) (bool, error) {
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
