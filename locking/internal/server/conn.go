package server

import (
	"net"
	"sync/atomic"
	"syscall"
)

// Conn counts the reads that bring something, because a server that has said anything isn't unreachable.
type Conn struct {
	net.Conn
	Heard *atomic.Int64
}

func (c Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.Heard.Add(1)
	}
	return n, err
}

// SyscallConn lets go-redis see that the server has closed an idle connection.
func (c Conn) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn()
}
