//go:build unix && !linux

package guard

import "golang.org/x/sys/unix"

// ended reports whether a group is empty.
func ended(pgid int) bool { return unix.Kill(-pgid, 0) == unix.ESRCH }

// Members finds no process: these systems don't list them.
type Members struct{}

// Continued returns false.
func (*Members) Continued(int, int, bool) bool { return false }

// anchor does nothing: these systems don't show which processes of the group are ours.
type anchor struct{}

func (*anchor) hold(int) int { return 0 }
func (*anchor) release()     {}

func nameProcess(string) {}

// inherited reports whether a file lacks close-on-exec. Files that we have opened have it.
func inherited(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}
