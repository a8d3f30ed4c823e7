//go:build unix && !linux

package guard

import "golang.org/x/sys/unix"

// ended reports whether a group has no process.
func ended(pgid int) bool { return unix.Kill(-pgid, 0) == unix.ESRCH }

func nameProcess(string) {}

// inherited reports whether a file would be inherited once more, as those that we have
// opened would not.
func inherited(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}
