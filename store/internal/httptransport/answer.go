package httptransport

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

type answerKey struct{}

// Answer has the server's answer to the one request that a store sends under a context.
type Answer struct {
	own   func(*http.Request) bool
	whole int64 // number of bytes of a success to read before the client library does; 0 leaves its body alone
	mu    sync.Mutex
	facts facts
}

type facts struct {
	sent    bool
	opaque  bool  // the transport might hide that an answer began
	begun   bool  // an answer began, even if it broke off
	err     error // why there is no answer, or only a part of it
	status  int   // of HTTP, 0 without an answer
	header  http.Header
	body    []byte
	endless bool // neither a length, nor chunks, nor gzip mark the end of the body
	proxy   string
}

// ErrPageEnd is returned for a second request after a success. A client library sends one when it asks for the next
// page of a listing by itself.
var ErrPageEnd = errors.New("the page is at its end")

// errRepeated is returned for a second request after a failure, because a client library must not repeat requests by
// itself.
var errRepeated = errors.New("the client's own retries are refused")

// Watch returns a context for one request, and the Answer that records its response. If own isn't nil, the transport
// still sends requests for which own returns false, but doesn't record them.
func Watch(ctx context.Context, own func(*http.Request) bool) (context.Context, *Answer) {
	a := &Answer{own: own}
	return context.WithValue(ctx, answerKey{}, a), a
}

// Whole makes the transport read the body of a success before the client library does: up to limit bytes, and one more
// to show that the body is larger.
func (a *Answer) Whole(limit int64) { a.whole = max(limit+1, limit) }

// answerOf returns the Answer of a context of Watch. For any other context it returns a new one, which is never read.
func answerOf(ctx context.Context) *Answer {
	if a, ok := ctx.Value(answerKey{}).(*Answer); ok {
		return a
	}
	return new(Answer)
}

// claim returns an error unless this is the first request. If a client repeated a write by itself, the server could
// apply it after a later write. traced is set if the transport reports the first byte of an answer.
func (a *Answer) claim(traced bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := &a.facts
	f.opaque = !traced
	switch {
	case !f.sent:
		f.sent = true
		return nil
	case f.err != nil:
		return f.err
	case f.status == 0 || f.status >= 300:
		return errRepeated
	default:
		return ErrPageEnd
	}
}

// begin records that an answer has begun.
func (a *Answer) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.facts.begun = true
}

// fail records why there is no answer, or only a part of it. It is needed because the client libraries return errors of
// their own instead.
func (a *Answer) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.facts.err = err
}

// maxRefusal is the number of bytes that we read of a refusal's body.
const maxRefusal = 64 << 10

// read records an answer, with the body of a refusal, and of a success if Whole was called. The client library can read
// the body again. If the body of a refusal breaks off, read doesn't record the refusal, because its meaning depends on
// a code in the body.
func (a *Answer) read(res *http.Response, proxy string) error {
	unpack(res)
	endless := !res.Uncompressed && res.ContentLength < 0 && len(res.TransferEncoding) == 0
	limit, refused := a.whole, res.StatusCode >= 300
	if refused {
		limit = maxRefusal
	}
	var body []byte
	var err error
	if limit > 0 {
		body, err = io.ReadAll(io.LimitReader(res.Body, limit))
		_ = res.Body.Close()
		res.Body = io.NopCloser(bytes.NewReader(body))
	}
	if refused && err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	f := &a.facts
	f.status, f.header, f.body, f.proxy = res.StatusCode, res.Header.Clone(), body, proxy
	f.endless = endless
	return err
}

// unpack makes the body of an answer plain if it was compressed by gzip. Our requests don't ask for that, but some
// proxies do it. An object that was stored with this Content-Encoding is unpacked too, unless its body isn't compressed.
func unpack(res *http.Response) {
	if !strings.EqualFold(res.Header.Get("Content-Encoding"), "gzip") {
		return
	}
	body := bufio.NewReader(res.Body)
	plain := struct {
		io.Reader
		io.Closer
	}{body, res.Body}
	defer func() { res.Body = plain }()
	if magic, err := body.Peek(2); err != nil || string(magic) != "\x1f\x8b" {
		return
	}
	unpacked, err := gzip.NewReader(body)
	if err != nil {
		return
	}
	plain.Reader = unpacked
	res.Header = res.Header.Clone()
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.ContentLength, res.Uncompressed = -1, true
}

// Reset forgets the answer, so that the store can send another request.
func (a *Answer) Reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.facts = facts{}
}

func (a *Answer) now() facts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.facts
}

// Begun reports whether an answer began, or might have begun. Only an *http.Transport is known to report the first byte
// of an answer. A decorator of it might repeat a request, or hide its answer.
func (a *Answer) Begun() bool {
	f := a.now()
	return f.begun || f.opaque
}

// Silence reports whether the request has failed without any answer. In doubt it returns false.
func (a *Answer) Silence() bool {
	f := a.now()
	return !f.begun && !f.opaque && f.err != nil && NoAnswer(f.err)
}

// Err returns why there is no answer, or only a part of it, or nil.
func (a *Answer) Err() error { return a.now().err }

// Body returns the body of a refusal, and of a success if Whole was called.
func (a *Answer) Body() []byte { return a.now().body }

// Endless reports whether neither a length, nor chunks, nor gzip mark the end of the body. Such a body might be cut off.
func (a *Answer) Endless() bool { return a.now().endless }

// Proxy returns the proxy that might have answered instead of the server, or "".
func (a *Answer) Proxy() string { return a.now().proxy }

// Status returns the HTTP status, or 0 without an answer.
func (a *Answer) Status() int { return a.now().status }

// Header returns a field of the response, or "".
func (a *Answer) Header(name string) string { return a.now().header.Get(name) }

// Date returns the server's clock when it answered, in whole seconds, or zero if the answer has no date. The server's
// present time is no earlier.
func (a *Answer) Date() time.Time {
	date, err := http.ParseTime(a.Header("Date"))
	if err != nil {
		return time.Time{}
	}
	return date
}
