// Package proxy is an HTTP proxy in front of an object store that misbehaves as it
// is told: it delays, loses, repeats and cuts off what passes, shifts the store's
// clock, strips conditions, and counts. It speaks of keys, for any S3 server and
// for B2's native API. It serves tests, and runs of the real command on bad days.
//
//	p, err := proxy.New("http://127.0.0.1:9000")
//	p.Behave(proxy.Behaviour{Decide: func(r proxy.Request) proxy.Fault {
//		return proxy.Fault{LoseAnswer: r.Op == "put" && r.N == 1}
//	}})
package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/repolock/repolock/internal/test/freeport"
)

// Proxy is a proxy that listens on a port of this machine.
type Proxy struct {
	target    *url.URL
	address   string
	transport *http.Transport
	behaviour atomic.Pointer[Behaviour]

	// ctx ends what hangs or is put off when the proxy is closed.
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	server   *http.Server // nil while it is stopped
	listener net.Listener // of server
	counts   map[string]int
	markers  map[string]bool // keys whose last change was a deletion
	puts     atomic.Int64    // that were taken
	log      Log
	pending  int // requests that are under way or put off
	settled  sync.Cond
}

// New starts a proxy in front of the server with the URL target, on a port that is
// free. By default it passes on every request.
func New(target string) (*Proxy, error) {
	n, err := freeport.Free()
	if err != nil {
		return nil, err
	}
	return Listen(fmt.Sprintf("127.0.0.1:%d", n), target)
}

// Listen is New on an address of the caller's choice.
func Listen(address, target string) (*Proxy, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("target %q isn't a URL with a host", target)
	}
	p := &Proxy{
		target: u, address: address, counts: map[string]int{}, markers: map[string]bool{},
		// A server can close an idle connection, and MinIO closes one after a refusal. That
		// would be a fault that no test has set.
		transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true},
	}
	p.settled.L = &p.mu
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.Behave(Behaviour{})
	return p, p.Start()
}

// URL is where the proxy is.
func (p *Proxy) URL() string { return "http://" + p.Host() }

// Host is the proxy's host and port. They stay the same through Stop and Start.
func (p *Proxy) Host() string { return p.address }

// Behave sets the behaviour from now on.
func (p *Proxy) Behave(b Behaviour) { p.behaviour.Store(&b) }

// Start accepts requests again, on the same port as before.
func (p *Proxy) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		return nil
	}
	listener, err := freeport.Listen(p.address)
	if err != nil {
		return err
	}
	p.server, p.listener = &http.Server{Handler: http.HandlerFunc(p.serve)}, listener
	go func(s *http.Server) { _ = s.Serve(listener) }(p.server)
	return nil
}

// Stop refuses connections, and cuts the existing ones, until Start. A forwarded request can
// still be applied.
func (p *Proxy) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		_ = p.listener.Close() // the server doesn't know it until Serve has begun
		_ = p.server.Close()
		p.server = nil
	}
}

// Close stops the proxy for good, and waits until no forwarded request is under way. A request
// that was put off and not yet forwarded is dropped.
func (p *Proxy) Close() {
	p.Stop()
	p.cancel()
	p.Settle()
}

// Settle waits until no request is under way, nor put off. After it no request is applied any
// more that a client has given up.
func (p *Proxy) Settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.pending > 0 {
		p.settled.Wait()
	}
}

// begin counts a request that is under way or put off, and returns a function that ends it.
func (p *Proxy) begin() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pending--
		p.settled.Broadcast()
	}
}
