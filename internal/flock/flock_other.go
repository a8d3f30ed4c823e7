//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package flock

import (
	"errors"
	"os"
)

// Supported reports whether this system has flock(2). Its file systems need not have it.
const Supported = false

// Try returns errors.ErrUnsupported: a directory can't be locked here.
func Try(*os.File) (bool, error) { return false, errors.ErrUnsupported }

// TryShared returns errors.ErrUnsupported, as Try does.
func TryShared(*os.File) (bool, error) { return false, errors.ErrUnsupported }

// Unlock does nothing.
func Unlock(*os.File) {}
