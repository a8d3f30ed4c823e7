package postgres

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout makes the system close the connection if the peer doesn't acknowledge sent data for d.
func setUserTimeout(c *net.TCPConn, d time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}
