// Package tcpproxy passes bytes between clients and a server, and loses requests and answers as a test wants.
package tcpproxy

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// Loss is what happens to a request. The server executes it, unless it is dropped.
type Loss int

const (
	// Swallow lets no answer come on this connection any more.
	Swallow Loss = iota + 1
	// Close closes the connection in place of the answer.
	Close
	// Drop closes the connection in place of the request.
	Drop
	// Detain passes the request on when Free is called.
	Detain
)

// Proxy is in front of one server. A request must be one write of its client.
type Proxy struct {
	net.Listener
	server string

	mu    sync.Mutex
	mute  bool
	lag   time.Duration
	flow  chan struct{} // closed while bytes pass
	text  string        // of the next request to be lost
	how   Loss
	lost  chan struct{} // closed when that request has come
	conns []net.Conn

	free, answered chan struct{} // of the request that is detained

	atClient, atServer int // see Trips
}

// New starts a proxy that ends with the test.
func New(t testing.TB, server string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.OK(t, err)
	p := &Proxy{Listener: l, server: server, flow: make(chan struct{}), free: make(chan struct{}), answered: make(chan struct{})}
	t.Cleanup(func() {
		_ = l.Close()
		p.Reset()
	})
	close(p.flow)
	go p.serve()
	return p
}

// Trips returns the number of round trips so far: the longest chain of bytes to the server and bytes back that came after
// them. It needs a Lag that is longer than either side needs to answer. Bytes that a client sends without waiting for an
// answer are part of the same round trip.
func (p *Proxy) Trips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.atClient
}

// Address is the proxy's host and port.
func (p *Proxy) Address() string { return p.Addr().String() }

// Mute drops all that either side sends, and closes no connection, as a network that is cut.
func (p *Proxy) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = true
}

// Lag makes the way of the bytes on later connections so long, in each direction.
func (p *Proxy) Lag(oneWay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lag = oneWay
}

// Stall holds all bytes back, until Resume. No byte is lost, as in a network that is away for a while.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flow = make(chan struct{})
}

// Resume passes the bytes on that Stall has held back.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.flow)
}

// Reset closes all connections.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// Lose loses the next request with a text in it. It returns a channel that is closed when that has come.
func (p *Proxy) Lose(text string, how Loss) (lost <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text, p.how, p.lost = text, how, make(chan struct{})
	return p.lost
}

// Free passes the detained request on, and returns when the server has answered.
func (p *Proxy) Free() {
	close(p.free)
	<-p.answered
}

func (p *Proxy) serve() {
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
		lag := p.lag
		p.mu.Unlock()
		loss := new(Loss) // of this connection
		sent := func() func() {
			trip := p.atClient + 1
			return func() { p.atServer = max(p.atServer, trip) }
		}
		answered := func() func() {
			trip := p.atServer
			return func() { p.atClient = max(p.atClient, trip) }
		}
		go p.pass(p.later(server, lag, sent), client, func(b []byte) Loss {
			if p.text == "" || !bytes.Contains(b, []byte(p.text)) {
				return 0
			}
			*loss, p.text = p.how, ""
			close(p.lost)
			if p.how == Drop || p.how == Detain {
				return p.how
			}
			return 0
		})
		go p.pass(p.later(client, lag, answered), server, func([]byte) Loss {
			if *loss == Detain {
				*loss = 0
				close(p.answered)
			}
			return *loss
		})
	}
}

// pass copies bytes. loss, which runs under the mutex, says what happens to them; 0 is nothing. What a side closes
// is closed for the other, unless the proxy is silent.
func (p *Proxy) pass(to io.WriteCloser, from net.Conn, loss func([]byte) Loss) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		mute, flow, how := p.mute, p.flow, Loss(0)
		if n > 0 {
			how = loss(b[:n])
		}
		p.mu.Unlock()
		switch {
		case how == Close, how == Drop:
			_, _ = from.Close(), to.Close()
			return
		case how == Detain:
			<-p.free
		}
		<-flow
		if n > 0 && !mute && how != Swallow {
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

// lagging writes after a while.
type lagging struct {
	net.Conn
	*Proxy
	lag   time.Duration
	queue chan due
	sent  func() (arrived func()) // both run under the mutex
}

// due is a write, or without bytes the close.
type due struct {
	at      time.Time
	b       []byte
	arrived func()
}

func (p *Proxy) later(to net.Conn, lag time.Duration, sent func() func()) io.WriteCloser {
	if lag == 0 {
		return to
	}
	l := &lagging{to, p, lag, make(chan due, 1<<16), sent}
	go func() {
		for d := range l.queue {
			time.Sleep(time.Until(d.at))
			if d.b == nil {
				_ = to.Close()
				return
			}
			p.mu.Lock()
			d.arrived()
			p.mu.Unlock()
			_, _ = to.Write(d.b)
		}
	}()
	return l
}

func (l *lagging) Write(b []byte) (int, error) {
	l.mu.Lock()
	arrived := l.sent()
	l.mu.Unlock()
	l.queue <- due{time.Now().Add(l.lag), bytes.Clone(b), arrived}
	return len(b), nil
}

func (l *lagging) Close() error {
	l.queue <- due{at: time.Now().Add(l.lag)}
	return nil
}
