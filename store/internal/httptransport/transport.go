// Package httptransport is the HTTP client of the backends that speak HTTP, made for few,
// small and urgent requests.
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

// Configure sets up a transport so that one connection that hangs holds up
// nothing but the request on it.
func Configure(t *http.Transport) {
	http1(t)
	// A connection that was idle for long can be dead without our knowing, and each attempt to
	// renew a lock would try another dead one.
	t.IdleConnTimeout = 10 * time.Second
	t.MaxIdleConnsPerHost = 64 // as many requests as an acquirer has under way at once
	t.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 5 * time.Second
	t.ExpectContinueTimeout = 0
	// Bodies are small, and a compressed one that we didn't ask for is the
	// object's own.
	t.DisableCompression = true
}

// http1 has the transport offer and speak HTTP/1.1 alone. With HTTP/2 all requests share a connection: if it
// hangs, so does the next attempt, and the one after that; and it can't be left. A transport that was cloned
// can still offer h2 in the TLS handshake, which a server then speaks.
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

// Bare returns a new transport, for one store. It has the settings of http.DefaultTransport,
// or Go's own if the program has replaced that by another kind of transport.
func Bare() *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 100}
	if set, ok := http.DefaultTransport.(*http.Transport); ok {
		t = set.Clone()
	}
	Configure(t)
	return t
}

// Watched returns a transport that notes each response in the Answer of the
// request's context, and sends one request for each Answer. It has the settings of an
// *http.Transport, and connections of its own, of HTTP/1.1, which resume TLS sessions. After a failure it drops
// the idle ones, which might be dead too, and after one on a kept connection it keeps none for a minute.
func Watched(next http.RoundTripper) http.RoundTripper {
	if t, ok := next.(*http.Transport); ok {
		own := t.Clone()
		http1(own)
		resuming(own)
		refusals(own)
		leaves := leaving(own)
		fresh := own.Clone()
		fresh.DisableKeepAlives = true
		return &watched{next: own, fresh: fresh, leaves: leaves, elapsed: clock.System{}.Elapsed}
	}
	return &watched{next: next, fresh: next, elapsed: clock.System{}.Elapsed}
}

// resuming has the transport keep TLS sessions: with TLS 1.2 another connection then takes a round
// trip less.
func resuming(t *http.Transport) {
	if t.TLSClientConfig.ClientSessionCache == nil {
		t.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	}
}

type watched struct {
	next http.RoundTripper
	// fresh is next with a new connection for each request, or next itself if it is a decorator.
	fresh http.RoundTripper
	// leaves: a connection of next can be left when the answer to a request is there.
	leaves   bool
	elapsed  func() time.Duration
	trustsAt atomic.Int64 // of elapsed: before it no connection is kept
}

func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	a := AnswerOf(r.Context())
	if !a.owns(r) {
		return w.next.RoundTrip(r)
	}
	own, traced := w.next.(*http.Transport)
	if err := a.claim(r, traced); err != nil {
		return nil, err
	}
	r, err := whole(r, w.leaves)
	if err != nil {
		return nil, err
	}
	r, sent := counted(Begun(r, a.begin))
	res, on, err := w.send(r)
	if err == nil && !traced && r.Method != http.MethodGet && sent.Load() > 1 {
		err = errSentTwice
		_ = res.Body.Close()
	}
	if err != nil {
		err = dialled(own, r, err)
		a.Fail(err)
		if traced && !errors.Is(err, context.Canceled) {
			own.CloseIdleConnections()
		}
		return nil, err
	}
	var refusal []byte
	if res.StatusCode >= 300 {
		if conditional(r) {
			on.leave()
		}
		if refusal, err = read(res); err != nil {
			a.Fail(err)
			return nil, err
		}
	}
	a.note(res, refusal, forwarder(own, r))
	return res, nil
}

// Begun has f called when the first byte of the answer to a request comes.
func Begun(r *http.Request, f func()) *http.Request {
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotFirstResponseByte: f}))
}

// errSentTwice is returned for the answer to a write that a decorator of the transport has
// repeated. It is only that of the last attempt: another one might have been applied, or
// might yet be. An *http.Transport repeats a write only if the server can't have seen it.
var errSentTwice = errors.New("the HTTP client has repeated the request by itself, and must not")

// counted returns a request and the number of times that it is sent.
func counted(r *http.Request) (*http.Request, *atomic.Int32) {
	n := new(atomic.Int32)
	trace := &httptrace.ClientTrace{WroteHeaders: func() { n.Add(1) }}
	return r.WithContext(httptrace.WithClientTrace(r.Context(), trace)), n
}

// maxWhole is more than any body of a lock has.
const maxWhole = 128 << 10

// whole is the request as it is sent. MinIO answers 412 on the header alone, and
// closes the connection: the body that is still on its way would find it closed, and
// so would the next request, which may have been applied. So the header and a small
// body go out together, as the transport does with a body that it sees is in memory,
// and a connection isn't used again after a refused condition; nor, if it can't be left, after any.
func whole(r *http.Request, leaves bool) (*http.Request, error) {
	if r.Body == nil || r.ContentLength <= 0 || r.ContentLength > maxWhole {
		return r, nil
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil {
		return nil, err
	}
	sent := *r // the caller's is not ours to change
	sent.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	sent.Body, err = sent.GetBody()
	sent.Close = conditional(r) && !leaves
	return &sent, err
}

func conditional(r *http.Request) bool {
	return r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != ""
}

// maxRefusal is where the body of a refusal is cut off.
const maxRefusal = 64 << 10

// read reads the body of a refusal, and leaves it there to be read again.
func read(res *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// CloseIdleConnections lets http.Client reach the transport.
func (w *watched) CloseIdleConnections() {
	if c, ok := w.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
