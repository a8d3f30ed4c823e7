//go:build programs

package postgres_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// proxy passes bytes between clients and a server, until it drops them.
type proxy struct {
	net.Listener
	server string

	mu    sync.Mutex
	mute  bool   // what either side sends is dropped, and no connection is closed
	word  string // after a client has sent this, the server's bytes are dropped
	conns []net.Conn
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, server: server}
	t.Cleanup(func() {
		_ = l.Close()
		p.reset()
	})
	go p.serve()
	return p
}

func (p *proxy) address() string { return p.Addr().String() }

// cut makes the proxy silent, as a network that is cut.
func (p *proxy) cut(mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = mute
}

// dropAfter drops the answers to a statement with a word in it, and what follows. "" drops none.
func (p *proxy) dropAfter(word string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.word = word
}

// reset closes all connections.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *proxy) serve() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		dropping := new(bool)
		go p.pass(server, client, func(b []byte) {
			if p.word != "" && bytes.Contains(b, []byte(p.word)) {
				*dropping = true
			}
		}, func() bool { return p.mute })
		go p.pass(client, server, func([]byte) {}, func() bool { return p.mute || *dropping })
	}
}

// pass copies bytes. See and drop run under the mutex. What a side closes is closed for the other,
// unless the proxy is silent.
func (p *proxy) pass(to, from net.Conn, see func([]byte), drop func() bool) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		see(b[:n])
		dropped := drop()
		mute := p.mute
		p.mu.Unlock()
		if n > 0 && !dropped {
			_, _ = to.Write(b[:n])
		}
		if err != nil {
			if !mute {
				_ = to.Close()
			}
			return
		}
	}
}
