// Package web is the HTTP client of the backends that speak HTTP, made for few,
// small and urgent requests.
package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// Configure sets up a transport so that one connection that hangs holds up
// nothing but the request on it.
func Configure(t *http.Transport) {
	// With HTTP/2 all requests share a connection: if it hangs, so does the next
	// attempt, and the one after that.
	t.ForceAttemptHTTP2 = false
	t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	// A connection that was idle for long may be dead without our knowing, and
	// each attempt to renew a lock would try another dead one.
	t.IdleConnTimeout = 10 * time.Second
	t.MaxIdleConnsPerHost = 16
	t.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 5 * time.Second
	t.ExpectContinueTimeout = 0
	// Bodies are small, and a compressed one that we didn't ask for is the
	// object's own.
	t.DisableCompression = true
}

// Bare is a new transport, for one store.
func Bare() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	Configure(t)
	return t
}

// Transport is Bare, Watched.
func Transport() http.RoundTripper { return Watched(Bare()) }

// Watched has a transport note what it is answered in the Answer of the
// request's context, and drop its idle connections after a failure, which may
// be as dead.
func Watched(next http.RoundTripper) http.RoundTripper { return &watched{next} }

type watched struct{ next http.RoundTripper }

func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	r, err := whole(r)
	if err != nil {
		return nil, err
	}
	a, _ := r.Context().Value(answerKey{}).(*Answer)
	res, err := w.next.RoundTrip(Begun(r, a.begin))
	if err != nil {
		a.fail(err)
		if !errors.Is(err, context.Canceled) {
			w.CloseIdleConnections()
		}
		return nil, err
	}
	var refusal []byte
	if res.StatusCode >= 300 {
		if refusal, err = read(res); err != nil {
			return nil, err
		}
	}
	a.note(res, refusal)
	return res, nil
}

// Begun has f called when the first byte of the answer to a request comes.
func Begun(r *http.Request, f func()) *http.Request {
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotFirstResponseByte: f}))
}

// maxWhole is more than any body of a lock has.
const maxWhole = 128 << 10

// whole is the request as it is sent. MinIO answers 412 on the header alone, and
// closes the connection: the body that is still on its way would find it closed, and
// so would the next request, which may have been applied. So the header and a small
// body go out together, as the transport does with a body that it sees is in memory,
// and a connection isn't used again after a condition.
func whole(r *http.Request) (*http.Request, error) {
	if r.Body == nil || r.ContentLength <= 0 || r.ContentLength > maxWhole {
		return r, nil
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil {
		return nil, err
	}
	sent := *r // the caller's is not ours to change
	sent.Body = io.NopCloser(bytes.NewReader(body))
	sent.Close = r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != ""
	return &sent, nil
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

type answerKey struct{}

// Answer is what the last response to a request under a context said.
type Answer struct {
	mu      sync.Mutex
	begun   bool
	err     error
	status  int
	header  http.Header
	refusal []byte
}

// Watch returns a context whose requests note their answers in the Answer.
func Watch(ctx context.Context) (context.Context, *Answer) {
	a := new(Answer)
	return context.WithValue(ctx, answerKey{}, a), a
}

// begin notes that an answer begins, which may yet break off.
func (a *Answer) begin() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun = true
}

// fail notes why there is none: the libraries have words of their own for it.
func (a *Answer) fail(err error) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *Answer) note(res *http.Response, refusal []byte) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.header, a.refusal = res.StatusCode, res.Header.Clone(), refusal
}

// Reset forgets an answer: another request is about to be sent, and may get none.
func (a *Answer) Reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun, a.err, a.status, a.header, a.refusal = false, nil, 0, nil, nil
}

// Begun reports whether there was an answer, even if it broke off.
func (a *Answer) Begun() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.begun
}

// Silence reports whether a request was sent, or was to be, and nothing came back.
func (a *Answer) Silence() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.begun && a.err != nil && NoAnswer(a.err)
}

// Refusal is the body of an answer that is no success.
func (a *Answer) Refusal() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refusal
}

// Status is the HTTP status, 0 if there was no answer.
func (a *Answer) Status() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// Header is a field of the response, "" if it has none.
func (a *Answer) Header(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.header.Get(name)
}

// Date is the server's clock, in whole seconds, when it answered: a lower bound
// of what it shows now. Zero if it didn't say.
func (a *Answer) Date() time.Time {
	date, err := http.ParseTime(a.Header("Date"))
	if err != nil {
		return time.Time{}
	}
	return date
}
