//go:build unix

package dir

import (
	"errors"
	"syscall"
)

var (
	noSpace  = []error{syscall.ENOSPC, syscall.EDQUOT}
	readOnly = []error{syscall.EROFS}
	// unreachable is what network file systems say of a server that doesn't answer: NFS
	// mounted soft, SMB, FUSE whose process is gone. (ESTALE is what one says that does.)
	unreachable = []error{
		syscall.ENOTCONN, syscall.ETIMEDOUT, syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED,
	}
)

// noLinks says that the file system has no hard links. EPERM may also be meant
// as it is said; the other way to the same end will say it again.
func noLinks(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) ||
		errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS)
}
