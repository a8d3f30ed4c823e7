//go:build unix

package beads

import (
	"errors"
	"syscall"
)

// nonblock keeps the opening of a pipe from waiting for the other end.
const nonblock = syscall.O_NONBLOCK

// isNoLinks reports whether an error is that of a file system without hard links (FAT).
func isNoLinks(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, errors.ErrUnsupported)
}
