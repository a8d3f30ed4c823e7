package httptransport

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

type answerKey struct{}

// Answer is the response to the one request that is sent under a context.
type Answer struct {
	own   func(*http.Request) bool
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
	refusal []byte
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

// Watches reports whether there is an Answer for a request.
func Watches(r *http.Request) bool {
	a, ok := r.Context().Value(answerKey{}).(*Answer)
	return ok && a.owns(r)
}

func (a *Answer) owns(r *http.Request) bool { return a.own == nil || a.own(r) }

// AnswerOf returns the Answer that Watch has put into a context, or one that nothing reads.
func AnswerOf(ctx context.Context) *Answer {
	if a, ok := ctx.Value(answerKey{}).(*Answer); ok {
		return a
	}
	return new(Answer)
}

// claim admits one request. A write that a client repeats by itself could be applied after
// a later one. The request with which minio-go asks for a bucket's region doesn't count.
func (a *Answer) claim(r *http.Request, traced bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := &a.facts
	f.opaque = !traced
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Has("location"):
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

// Fail notes why there is no answer, or none that can be used: the client libraries
// replace the error by one of their own.
func (a *Answer) Fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.facts.err = err
}

func (a *Answer) note(res *http.Response, refusal []byte, proxy string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.facts.status, a.facts.header, a.facts.refusal, a.facts.proxy = res.StatusCode, res.Header.Clone(), refusal, proxy
}

// Reset forgets an answer: another request is about to be sent, and might get none.
func (a *Answer) Reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.facts = facts{}
}

func (a *Answer) read() facts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.facts
}

// Begun reports whether there was an answer, even if it broke off, or might have been.
// Only an *http.Transport is known to report an answer's first byte: a decorator might
// repeat a request, or hide what it was answered.
func (a *Answer) Begun() bool {
	f := a.read()
	return f.begun || f.opaque
}

// Silence reports whether a request was sent, or was to be, and nothing came back. In
// doubt something did.
func (a *Answer) Silence() bool {
	f := a.read()
	return !f.begun && !f.opaque && f.err != nil && NoAnswer(f.err)
}

// Refusal is the body of an answer that is no success.
func (a *Answer) Refusal() []byte { return a.read().refusal }

// Proxy is the proxy that might have answered in the server's place, or "".
func (a *Answer) Proxy() string { return a.read().proxy }

// Status is the HTTP status, 0 if there was no answer.
func (a *Answer) Status() int { return a.read().status }

// Header is a field of the response, "" if it has none.
func (a *Answer) Header(name string) string { return a.read().header.Get(name) }

// Date returns the server's clock, in whole seconds, when it answered: a lower bound of its
// present time. Zero if the answer has none.
func (a *Answer) Date() time.Time {
	date, err := http.ParseTime(a.Header("Date"))
	if err != nil {
		return time.Time{}
	}
	return date
}
