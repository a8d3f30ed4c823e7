package httptransport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

type answerKey struct{}

// Answer is the answer to the one request that is sent under a context.
type Answer struct {
	own   func(*http.Request) bool
	whole int64 // bytes of a success that are read, or 0 to leave its body alone
	mu    sync.Mutex
	facts facts
}

type facts struct {
	sent    bool
	opaque  bool // the transport might hide that a response began
	begun   bool
	err     error
	status  int
	header  http.Header
	body    []byte
	endless bool // nothing says where the body ends
	proxy   string
}

// ErrPageEnd is returned for a second request after a success: the client asks by itself
// for the next page of a listing.
var ErrPageEnd = errors.New("the page is at its end")

// errRepeated is returned for a second request after a failure: the client repeats it.
var errRepeated = errors.New("the client's own retries are refused")

// Watch returns a context under which one request is sent, whose response the Answer notes.
// Requests that aren't the store's own, if own isn't nil, pass beside it.
func Watch(ctx context.Context, own func(*http.Request) bool) (context.Context, *Answer) {
	a := &Answer{own: own}
	return context.WithValue(ctx, answerKey{}, a), a
}

// Whole has the transport read the body of a success before the client library sees it: up to limit bytes,
// and one more if there is one.
func (a *Answer) Whole(limit int64) { a.whole = max(limit+1, limit) }

// answerOf returns the Answer that Watch has put into a context, or one that nothing reads.
func answerOf(ctx context.Context) *Answer {
	if a, ok := ctx.Value(answerKey{}).(*Answer); ok {
		return a
	}
	return new(Answer)
}

// asksRegion reports whether minio-go asks for a bucket's region, which it does by itself.
func asksRegion(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Query().Has("location")
}

// claim admits one request. A write that a client repeats by itself could be applied after
// a later one. A request for the bucket's region doesn't count.
func (a *Answer) claim(r *http.Request, traced bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := &a.facts
	f.opaque = !traced
	switch {
	case asksRegion(r):
		return nil
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

// begin notes that an answer begins, which can still break off.
func (a *Answer) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.facts.begun = true
}

// fail notes why there is no answer, or not all of it: the client libraries replace the error by one of
// their own.
func (a *Answer) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.facts.err = err
}

// maxRefusal is where the body of a refusal is cut off.
const maxRefusal = 64 << 10

// read notes an answer, with the body of a refusal, and of a success if Whole was called. It leaves the body to be
// read again. Of a refusal whose body breaks off it notes nothing: a code in it would have told its meaning.
func (a *Answer) read(r *http.Request, res *http.Response, proxy string) error {
	limit, refused := a.whole, res.StatusCode >= 300
	if refused || asksRegion(r) {
		limit = maxRefusal
	}
	var body []byte
	var err error
	if limit > 0 {
		body, err = io.ReadAll(io.LimitReader(res.Body, limit))
		_ = res.Body.Close()
		res.Body = io.NopCloser(bytes.NewReader(body))
	}
	if refused && err != nil || !refused && asksRegion(r) {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	f := &a.facts
	f.status, f.header, f.body, f.proxy = res.StatusCode, res.Header.Clone(), body, proxy
	f.endless = res.ContentLength < 0 && len(res.TransferEncoding) == 0
	return err
}

// Reset forgets an answer: another request is about to be sent, and might get none.
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

// Begun reports whether there was an answer, even if it broke off, or might have been.
// Only an *http.Transport is known to report an answer's first byte: a decorator might
// repeat a request, or hide what it was answered.
func (a *Answer) Begun() bool {
	f := a.now()
	return f.begun || f.opaque
}

// Silence reports whether a request was sent, or was to be, and nothing came back. In
// doubt something did.
func (a *Answer) Silence() bool {
	f := a.now()
	return !f.begun && !f.opaque && f.err != nil && NoAnswer(f.err)
}

// Err is why there is no answer, or not all of it, or nil.
func (a *Answer) Err() error { return a.now().err }

// Body is the body of a refusal, and of a success if Whole was called.
func (a *Answer) Body() []byte { return a.now().body }

// Endless reports whether nothing says where the body ends, so that it may be cut off.
func (a *Answer) Endless() bool { return a.now().endless }

// Proxy is the proxy that might have answered in the server's place, or "".
func (a *Answer) Proxy() string { return a.now().proxy }

// Status is the HTTP status, 0 if there was no answer.
func (a *Answer) Status() int { return a.now().status }

// Header is a field of the response, "" if it has none.
func (a *Answer) Header(name string) string { return a.now().header.Get(name) }

// Date returns the server's clock, in whole seconds, when it answered: a lower bound of its
// present time. Zero if the answer has none.
func (a *Answer) Date() time.Time {
	date, err := http.ParseTime(a.Header("Date"))
	if err != nil {
		return time.Time{}
	}
	return date
}
