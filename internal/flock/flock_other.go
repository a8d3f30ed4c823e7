//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package flock

import (
	"errors"
	"os"
)

// Supported reports whether this system has flock(2). Some of its file systems might still lack it.
const Supported = false

// Try returns errors.ErrUnsupported.
func Try(*os.File) (bool, error) { return false, errors.ErrUnsupported }

// TryShared returns errors.ErrUnsupported.
func TryShared(*os.File) (bool, error) { return false, errors.ErrUnsupported }

// Unlock does nothing.
func Unlock(*os.File) {}
