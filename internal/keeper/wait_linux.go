package keeper

import "golang.org/x/sys/unix"

// wait waits until the process that a pidfd stands for has ended, and reports whether it
// has: pidfd_open(2).
func wait(pidfd uintptr) bool {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if err != unix.EINTR {
			return err == nil
		}
	}
}
