//go:build unix

package dir

import (
	"errors"
	"syscall"
)

var (
	noSpace  = []error{syscall.ENOSPC, syscall.EDQUOT}
	readOnly = []error{syscall.EROFS}
)

// noLinks says that the file system has no hard links. EPERM may also be meant
// as it is said; the other way to the same end will say it again.
func noLinks(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) ||
		errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS)
}
