// Package httptransport is the HTTP client of the backends that use HTTP. It is made for few, small and urgent
// requests.
package httptransport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// Configure sets up a transport so that a connection that hangs delays only the request on it.
func Configure(t *http.Transport) {
	http1(t)
	// A connection that was idle for long might be dead. If there were many, each attempt to renew a lock would try
	// another dead one.
	t.IdleConnTimeout = 10 * time.Second
	t.MaxIdleConnsPerHost = 64 // the most requests that an acquirer has under way at once
	t.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 5 * time.Second
	t.ExpectContinueTimeout = 0
	// Bodies are small, so compression saves nothing. If an object itself is compressed, its body must not be changed.
	t.DisableCompression = true
}

// http1 makes the transport offer and use only HTTP/1.1. With HTTP/2 all requests share one connection, which can't be
// retired. If it hangs, each later attempt hangs too. NextProtos keeps a cloned transport from offering h2 in the TLS
// handshake.
func http1(t *http.Transport) {
	t.ForceAttemptHTTP2 = false
	t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = new(tls.Config)
	}
	t.TLSClientConfig.NextProtos = []string{"http/1.1"}
}

// Bare returns a new transport, for one store. It has the settings of http.DefaultTransport. If the program has
// replaced that by another type, it has Go's own settings.
func Bare() *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 100}
	if set, ok := http.DefaultTransport.(*http.Transport); ok {
		t = set.Clone()
	}
	Configure(t)
	return t
}

// Watched returns a transport that records each response in the Answer of the request's context, and sends one request
// for each Answer.
//
// If next is an *http.Transport, the new transport has its settings, but its own connections. They use HTTP/1.1, and
// resume TLS sessions. After a failure the transport drops its idle connections, which might be dead too. After a
// failure on a reused connection, it reuses no connection for a minute.
func Watched(next http.RoundTripper) http.RoundTripper {
	w := &watched{next: next, fresh: next, elapsed: clock.System{}.Elapsed}
	if t, ok := next.(*http.Transport); ok {
		own := t.Clone()
		http1(own)
		if own.TLSClientConfig.ClientSessionCache == nil { // with TLS 1.2 a resumed session saves a round trip
			own.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(0)
		}
		refusals(own)
		w.retires = retiring(own)
		fresh := own.Clone()
		fresh.DisableKeepAlives = true
		w.own, w.next, w.fresh = own, own, fresh
	}
	return w
}

// IsWatched reports whether a transport is one that Watched returned.
func IsWatched(t http.RoundTripper) bool {
	_, ok := t.(*watched)
	return ok
}

type watched struct {
	next http.RoundTripper
	own  *http.Transport // next, or nil if next is a decorator
	// fresh is next, but opens a connection for each request. If next is a decorator, fresh is next itself.
	fresh http.RoundTripper
	// retires is set if the connections of next can be retired.
	retires  bool
	elapsed  func() time.Duration
	trustsAt atomic.Int64 // until this elapsed time, in ns, no connection is reused
}

func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	a := answerOf(r.Context())
	if a.own != nil && !a.own(r) {
		return w.next.RoundTrip(r)
	}
	if err := a.claim(w.own != nil); err != nil {
		return nil, err
	}
	r, err := whole(r, w.retires)
	if err != nil {
		return nil, err
	}
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotFirstResponseByte: a.begin}))
	res, on, err := w.send(r)
	if err != nil {
		err = dialled(w.own, r, err)
		if w.own != nil && !errors.Is(err, context.Canceled) {
			w.own.CloseIdleConnections()
		}
	} else {
		if res.StatusCode >= 300 && conditional(r) {
			on.retire()
		}
		err = a.read(res, forwarder(w.own, r))
	}
	if err != nil {
		a.fail(err)
		return nil, err
	}
	return res, nil
}

// errSentTwice replaces the answer to a write that a decorator of the transport has repeated. The answer is only for
// the last attempt. The server might have applied another attempt, or might apply it later. An *http.Transport repeats
// a write only if the server can't have seen it.
var errSentTwice = errors.New("the HTTP client has repeated the request, so it might have been applied twice")

// send sends a request on a connection that isn't retired, and returns the answer and the connection. After a failure
// on a reused connection it uses only new connections for a while.
func (w *watched) send(r *http.Request) (res *http.Response, on *retirable, err error) {
	kept := false
	var sent atomic.Int32
	trace := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			kept = info.Reused
			conn := info.Conn
			if secure, ok := conn.(*tls.Conn); ok {
				conn = secure.NetConn()
			}
			on, _ = conn.(*retirable)
		},
		WroteHeaders: func() { sent.Add(1) },
	}
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
	next := w.next
	if w.distrusts() {
		next, r.Close = w.fresh, true
	}
	for {
		on, kept = nil, false
		res, err = next.RoundTrip(r)
		switch {
		case err == nil && w.own == nil && r.Method != http.MethodGet && sent.Load() > 1:
			_ = res.Body.Close()
			return nil, on, errSentTwice
		case err == nil || on == nil || !on.retired.Load():
			if err != nil && kept && !errors.Is(err, context.Canceled) {
				w.distrust()
			}
			return res, on, err
		case r.Body != nil && r.GetBody == nil:
			return nil, on, err
		case r.Body != nil:
			if r.Body, err = r.GetBody(); err != nil {
				return nil, on, err
			}
		}
	}
}

// maxWhole is the largest body that is sent together with the header, in bytes. Any body of a lock is smaller.
const maxWhole = 128 << 10

// whole returns the request as it must be sent. MinIO answers 412 to the header alone, and closes the connection. If
// the body came later, it would find the connection closed. So would the next request on that connection, and then it
// would be unknown whether that request was applied. So whole puts a small body into memory, because the transport then
// sends it together with the header. No connection is reused after a refused condition. If a connection can't be
// retired, it isn't reused after any condition.
func whole(r *http.Request, retires bool) (*http.Request, error) {
	if r.Body == nil || r.ContentLength <= 0 || r.ContentLength > maxWhole {
		return r, nil
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil {
		return nil, err
	}
	sent := *r // a RoundTripper must not change the caller's request
	sent.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	sent.Body, err = sent.GetBody()
	sent.Close = conditional(r) && !retires
	return &sent, err
}

func conditional(r *http.Request) bool {
	return r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != ""
}

// retirable is a connection that can be retired: the answer to a sent request still arrives, but nothing more is sent.
// If the transport tries to reuse it, the write fails before it sends anything,
// so that the new request can be sent again.
type retirable struct {
	net.Conn
	retired atomic.Bool
}

var errRetired = errors.New("the connection was retired")

func (c *retirable) Write(p []byte) (int, error) {
	if c.retired.Load() {
		return 0, errRetired
	}
	return c.Conn.Write(p)
}

// retiring makes the connections of a transport retirable. It returns false, and changes nothing, if the program has
// set DialTLSContext or a deprecated dial function.
func retiring(t *http.Transport) bool {
	//lint:ignore SA1019 programs can still set the deprecated ways
	if t.DialTLSContext != nil || t.DialTLS != nil || t.Dial != nil {
		return false
	}
	dial := t.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &retirable{Conn: conn}, nil
	}
	return true
}

// retire marks a connection so that nothing more is sent on it. It must be called before the answer is read to the end,
// because then the transport can reuse the connection. c is nil if the connection can't be retired.
func (c *retirable) retire() {
	if c != nil {
		c.retired.Store(true)
	}
}

// distrustFor is for how long no connection is reused after a failure on a reused one. Some servers close each
// connection after milliseconds. Without the pause, each put would fail on the connection of the request before it.
const distrustFor = time.Minute

func (w *watched) distrust() { w.trustsAt.Store(int64(w.elapsed() + distrustFor)) }

func (w *watched) distrusts() bool { return int64(w.elapsed()) < w.trustsAt.Load() }
