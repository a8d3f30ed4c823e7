//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package flock

import (
	"os"

	"golang.org/x/sys/unix"
)

// Supported reports whether this system has flock(2). Some of its file systems might still lack it.
const Supported = true

// Try takes the flock without waiting, and reports whether it was free. It returns an error if this
// file system has no flock.
func Try(f *os.File) (bool, error) { return try(f, unix.LOCK_EX) }

// TryShared takes a flock that any number of open files can share. It excludes Try.
func TryShared(f *os.File) (bool, error) { return try(f, unix.LOCK_SH) }

func try(f *os.File, how int) (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err {
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return false, nil
		default:
			return err == nil, err
		}
	}
}

// Unlock frees the flock, and leaves the file open.
func Unlock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
