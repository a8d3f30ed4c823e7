package proxy

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// NewTLS is New, and clients speak TLS with the proxy. Latency then also counts for the handshakes of TCP and
// of TLS 1.3: a connection's first bytes come two round trips late.
func NewTLS(target, cert, key string) (*Proxy, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return start(target, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
}

// Traffic is the payload of TCP between clients and a proxy, with TLS: bytes that the clients have sent and received.
type Traffic struct{ Connections, Sent, Received int }

// Less returns the traffic since another Traffic of the same proxy.
func (t Traffic) Less(earlier Traffic) Traffic {
	return Traffic{t.Connections - earlier.Connections, t.Sent - earlier.Sent, t.Received - earlier.Received}
}

// traffic counts it.
type traffic struct{ connections, sent, received atomic.Int64 }

// Traffic returns the traffic since NewTLS. A proxy of New counts none.
func (p *Proxy) Traffic() Traffic {
	return Traffic{int(p.traffic.connections.Load()), int(p.traffic.sent.Load()), int(p.traffic.received.Load())}
}

// counting counts the bytes of the connections that a listener accepts.
type counting struct {
	net.Listener
	proxy *Proxy
}

func (l counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.proxy.traffic.connections.Add(1)
	return &conn{Conn: c, proxy: l.proxy}, nil
}

type conn struct {
	net.Conn
	proxy *Proxy
	begin sync.Once
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.proxy.traffic.sent.Add(int64(n))
	c.begin.Do(func() { time.Sleep(c.proxy.handshakes()) })
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	c.proxy.traffic.received.Add(int64(len(b)))
	return c.Conn.Write(b)
}

// handshakes returns the time of two round trips.
func (p *Proxy) handshakes() time.Duration { return 4 * p.behaviour.Load().Latency }
