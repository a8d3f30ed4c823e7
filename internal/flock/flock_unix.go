//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package flock

import (
	"os"

	"golang.org/x/sys/unix"
)

// Supported reports whether this system has flock(2). Its file systems need not have it.
const Supported = true

// Try takes the flock if it is free, and doesn't wait. It returns an error if this file system
// has none.
func Try(f *os.File) (bool, error) { return try(f, unix.LOCK_EX) }

// TryShared is Try for a flock that excludes those of Try, and no other of TryShared.
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

// Unlock frees the flock before the file is closed.
func Unlock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
