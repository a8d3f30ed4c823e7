package daemon

import "golang.org/x/sys/unix"

// wait waits for the end of a process by its pidfd (pidfd_open(2)), and reports whether it has ended.
func wait(pidfd uintptr) bool {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if err != unix.EINTR {
			return err == nil
		}
	}
}
