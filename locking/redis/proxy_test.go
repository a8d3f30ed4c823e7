//go:build programs

package redis_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// lossy is a TCP proxy in front of a server that loses answers.
type lossy struct {
	address string

	mu    sync.Mutex
	lose  func(request []byte) loss
	conns map[net.Conn]bool

	detained, free, answered chan struct{} // of the request that is detained
}

// loss is what happens to the answer to a request. The server executes the request, unless the
// loss is dropped.
type loss int

const (
	none     loss = iota
	swallow       // the answer doesn't come
	closed        // the connection is closed instead
	dropped       // the request is lost, and the connection is closed
	detained      // the request is executed after free is closed
)

func newLossy(t *testing.T, server string) *lossy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossy{address: l.Addr().String(), conns: make(map[net.Conn]bool),
		detained: make(chan struct{}), free: make(chan struct{}), answered: make(chan struct{})}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			p.note(client, upstream)
			serving.Go(func() { p.forward(client, upstream) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		serving.Wait()
	})
	return p
}

func (p *lossy) note(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
}

// cut closes all connections.
func (p *lossy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
}

// losing loses the answer to the first request that has the text, once.
func (p *lossy) losing(text string, how loss) (lost func() bool) {
	happened := false
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = func(request []byte) loss {
		if happened || !bytes.Contains(bytes.ToUpper(request), []byte(text)) {
			return none
		}
		happened = true
		return how
	}
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return happened
	}
}

func (p *lossy) decide(request []byte) loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose == nil {
		return none
	}
	return p.lose(request)
}

// forward passes a request, which is one packet, and its answer, which is one packet too, because
// the loopback interface doesn't split what is this small.
func (p *lossy) forward(client, upstream net.Conn) {
	defer client.Close()
	defer upstream.Close()
	request, answer := make([]byte, 1<<16), make([]byte, 1<<16)
	for {
		n, err := client.Read(request)
		if err != nil {
			return
		}
		how := p.decide(request[:n])
		switch how {
		case dropped:
			return
		case detained:
			close(p.detained)
			<-p.free
		}
		if _, err := upstream.Write(request[:n]); err != nil {
			return
		}
		m, err := upstream.Read(answer)
		if how == detained {
			close(p.answered)
		}
		switch {
		case err != nil, how == closed:
			return
		case how == swallow:
			continue
		}
		if _, err := client.Write(answer[:m]); err != nil {
			return
		}
	}
}
