// Package proxy is an HTTP proxy in front of an object store. It misbehaves on request: it delays, loses,
// repeats and cuts off requests, shifts the store's clock, strips conditions, and counts. It knows the keys of
// requests to any S3 server and to B2's native API.
//
//	p, err := proxy.New("http://127.0.0.1:9000")
//	p.Behave(proxy.Behaviour{Decide: func(r proxy.Request) proxy.Fault {
//		return proxy.Fault{LoseAnswer: r.Op == "put" && r.N == 1}
//	}})
package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/test/freeport"
)

// Proxy is a proxy that listens on a port of this machine.
type Proxy struct {
	target    *url.URL
	address   string
	tls       *tls.Config // nil without TLS
	traffic   traffic
	transport *http.Transport
	behaviour atomic.Pointer[Behaviour]

	// ctx ends what hangs or is put off when the proxy is closed.
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	server   *http.Server // nil while it is stopped
	listener net.Listener // of server
	counts   map[string]int
	markers  map[string]bool // keys that were deleted last
	puts     atomic.Int64    // that were taken
	log      Log
	pending  int // requests that are under way or put off
	settled  sync.Cond
}

// New starts a proxy in front of the server with the URL target, on a port that is
// free. By default it passes on every request.
func New(target string) (*Proxy, error) { return start(target, nil) }

func start(target string, secure *tls.Config) (*Proxy, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("target %q isn't a URL with a host", target)
	}
	n, err := freeport.Free()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target: u, tls: secure, address: fmt.Sprintf("127.0.0.1:%d", n), counts: map[string]int{}, markers: map[string]bool{},
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
func (p *Proxy) URL() string {
	if p.tls != nil {
		return "https://" + p.Host()
	}
	return "http://" + p.Host()
}

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
	accepts := listener
	if p.tls != nil {
		accepts = tls.NewListener(counting{listener, p}, p.tls)
		p.server.ErrorLog = log.New(io.Discard, "", 0) // of clients that leave during a handshake
	}
	go func(s *http.Server) { _ = s.Serve(accepts) }(p.server)
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

// Settle waits until no request is under way or put off. Then no abandoned request can still be applied.
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

// Behaviour decides how requests pass. The zero value passes them on unchanged.
type Behaviour struct {
	// Decide, if set, returns the fault of each request. Requests call it concurrently.
	Decide func(Request) Fault
	// Latency is added each way.
	Latency time.Duration
	// Blackhole accepts connections and requests, forwards and answers nothing.
	Blackhole bool
	// Shift is added to the store's clock everywhere in an answer: the fields Date and
	// Last-Modified, and the times in a listing.
	Shift time.Duration
	// StripConditions removes If-Match and If-None-Match from forwarded requests, as if the
	// server ignored them. It needs Sign.
	StripConditions bool
	// Sign, if set, replaces the signature of an S3 request, so that the server accepts a request that the
	// proxy has changed or a wrong clock has signed.
	Sign *Credentials
	// Quirks imitates a particular server.
	Quirks Quirks
}

// Credentials sign requests to an S3 server.
type Credentials struct{ User, Password string }

// Fault is what happens to one request. The zero value is no fault.
type Fault struct {
	// Before and After are delays, before the request is forwarded and before it
	// is answered.
	Before, After time.Duration

	// Of the following, which forward nothing, the first that is set counts.

	// Hang never answers.
	Hang bool
	// Reset resets the connection.
	Reset bool
	// Status answers with it, and with Code as the store's own code of the error.
	Status int
	Code   string
	// Late cuts the connection, and forwards the request after this time.
	Late time.Duration

	// The following forward the request.

	// LoseAnswer cuts the connection in place of an answer.
	LoseAnswer bool
	// Truncate answers in full length, and cuts the connection after half of the
	// body.
	Truncate bool
	// Again forwards the request once more, this long after the first time.
	Again time.Duration
}

// Throttled is S3's answer to a client that sends too fast.
var Throttled = Fault{Status: 503, Code: "SlowDown"}

// Entry is a request that has ended.
type Entry struct {
	Request
	// Status that was answered, 0 if the connection was cut.
	Status     int
	Start, End time.Time
}

// Log is the requests that have passed.
type Log []Entry

func (p *Proxy) note(e Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, e)
}

// Take returns the requests that have ended since the last Take.
func (p *Proxy) Take() Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.log
	p.log = nil
	return l
}

// Trips returns the number of round trips in sequence: the length of the longest chain of requests in which
// each begins after the one before has ended.
func (l Log) Trips() int {
	byEnd := slices.SortedFunc(slices.Values(l), func(a, b Entry) int { return a.End.Compare(b.End) })
	trips, last := 0, time.Time{}
	for _, e := range byEnd {
		if trips == 0 || e.Start.After(last) {
			trips, last = trips+1, e.End
		}
	}
	return trips
}

// String lists the requests, each with its answer, for messages.
func (l Log) String() string {
	var b strings.Builder
	for _, e := range l {
		fmt.Fprintf(&b, "%s %s: %d, %v\n", e.Start.Format("05.000"), e.Request, e.Status, e.End.Sub(e.Start).Round(time.Millisecond))
	}
	return b.String()
}
