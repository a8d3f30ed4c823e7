package redis

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"
)

// dialer connects with the context of the request and the life of the Backend, because go-redis
// goes on dialing for a request that was given up.
func (b *Backend) dialer(security *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(b.life, cancel)()
		plain, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		heard := conn{plain, &b.heard}
		if security == nil {
			return heard, nil
		}
		secure := tls.Client(heard, security)
		if err := secure.HandshakeContext(ctx); err != nil {
			plain.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Addr: plain.RemoteAddr(), Err: err}
		}
		return secure, nil
	}
}

// conn counts what the server says, because a server that has said anything isn't unreachable.
type conn struct {
	net.Conn
	heard *atomic.Int64
}

func (c conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Add(1)
	}
	return n, err
}

// SyscallConn lets go-redis see that the server has closed an idle connection.
func (c conn) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn()
}
