package httptransport

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// TestClaim: a second request under one context is refused: as the end of the page after a success, and as a repetition
// of the client library after a failure.
func TestClaim(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		set  func(*Answer)
		want error
	}{
		"a success":    {func(a *Answer) { a.facts.status = 200 }, ErrPageEnd},
		"no answer":    {func(*Answer) {}, errRepeated},
		"a refusal":    {func(a *Answer) { a.facts.status = 503 }, errRepeated},
		"a redirect":   {func(a *Answer) { a.facts.status = 300 }, errRepeated},
		"an error":     {func(a *Answer) { a.fail(down) }, down},
		"a cut answer": {func(a *Answer) { a.facts.status = 200; a.fail(down) }, down},
	} {
		_, a := Watch(t.Context(), nil)
		assert.OK(t, a.claim(true))
		c.set(a)
		for range 2 {
			assert.Is(t, a.claim(true), c.want, name)
		}
		a.Reset()
		assert.OK(t, a.claim(true))
	}
	one, another := answerOf(t.Context()), answerOf(t.Context())
	assert.That(t, !one.now().sent && one != another, "a context without an Answer has one")
}

// torn is a body that breaks off.
type torn struct{ io.Reader }

func (b torn) Read(p []byte) (int, error) {
	if n, err := b.Reader.Read(p); err == nil {
		return n, nil
	}
	return 0, io.ErrUnexpectedEOF
}

func (torn) Close() error { return nil }

// TestRead: the body of a refusal is read up to maxRefusal bytes, and that of a success only if Whole asks for it. A
// refusal that breaks off isn't one. A success that breaks off is recorded, and is an error.
func TestRead(t *testing.T) {
	const text = "body"
	for name, c := range map[string]struct {
		status int
		whole  int64
		torn   bool
		body   string
		fails  bool
	}{
		"a success":                 {200, -1, false, "", false},
		"a success, whole":          {200, 100, false, text, false},
		"a success that is larger":  {200, 2, false, text[:3], false},
		"a refusal":                 {404, -1, false, text, false},
		"a refusal that breaks off": {404, -1, true, "", true},
		"a success that breaks off": {200, 100, true, text, true},
		"a success that isn't read": {200, -1, true, "", false},
	} {
		_, a := Watch(t.Context(), nil)
		if c.whole >= 0 {
			a.Whole(c.whole)
		}
		body := io.NopCloser(strings.NewReader(text))
		if c.torn {
			body = torn{strings.NewReader(text)}
		}
		res := &http.Response{StatusCode: c.status, Header: http.Header{"X": {"y"}}, Body: body, ContentLength: -1}
		err := a.read(res, "proxy")
		assert.That(t, (err != nil) == c.fails && string(a.Body()) == c.body, "%s: %q, %v", name, a.Body(), err)
		if name == "a refusal that breaks off" {
			assert.Equal(t, a.Status(), 0, name)
			continue
		}
		assert.That(t, a.Status() == c.status && a.Header("X") == "y" && a.Proxy() == "proxy" && a.Endless(), "%s: %+v", name, a.now())
		again, _ := io.ReadAll(res.Body)
		assert.That(t, c.torn || strings.HasPrefix(text, string(again)) && len(again) >= len(c.body), "%s: read again: %q", name, again)
	}
	_, a := Watch(t.Context(), nil)
	huge := strings.Repeat("x", maxRefusal+1)
	assert.OK(t, a.read(&http.Response{StatusCode: 500, Body: io.NopCloser(strings.NewReader(huge))}, ""))
	assert.Equal(t, len(a.Body()), maxRefusal)
}

// slowTLS is a timeout.
type slowTLS struct{ error }

func (slowTLS) Timeout() bool   { return true }
func (slowTLS) Temporary() bool { return true }

// TestUnpack: a body is unpacked only if the answer is said to be compressed by gzip, and is. An object that is a gzip
// file, and a plain body of a wrong Content-Encoding, stay as they are.
func TestUnpack(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := io.WriteString(w, "body")
	assert.OK(t, errors.Join(err, w.Close()))
	for name, c := range map[string]struct {
		encoding, body, want string
	}{
		"packed":          {"gzip", packed.String(), "body"},
		"in capitals":     {"GZIP", packed.String(), "body"},
		"a gzip file":     {"", packed.String(), packed.String()},
		"of another kind": {"br", packed.String(), packed.String()},
		"plain":           {"gzip", `{"a lock": "of more than ten bytes"}`, `{"a lock": "of more than ten bytes"}`},
		"one byte":        {"gzip", "{", "{"},
		"empty":           {"gzip", "", ""},
	} {
		res := &http.Response{Header: http.Header{"Content-Encoding": {c.encoding}}, Body: io.NopCloser(strings.NewReader(c.body)), ContentLength: int64(len(c.body))}
		unpack(res)
		body, err := io.ReadAll(res.Body)
		assert.That(t, err == nil && string(body) == c.want, "%s: %q, %v", name, body, err)
		unpacked := c.body != c.want
		assert.That(t, res.Uncompressed == unpacked && (res.Header.Get("Content-Encoding") == "") == (unpacked || c.encoding == ""), "%s: %+v", name, res)
	}
}

// TestNoAnswer: which errors show that the server wasn't reached, or that the connection broke off.
func TestNoAnswer(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "dial", Err: errors.New("x")}, true},
		{&net.OpError{Op: "read", Err: errors.New("x")}, false},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, true},
		{slowTLS{errors.New("x")}, true},
		{&net.DNSError{IsNotFound: true}, false},
		{&net.DNSError{IsTemporary: true}, true},
		{fmt.Errorf("get: %w", io.EOF), true},
		{os.ErrDeadlineExceeded, true},
		{errProxyDown, true},
		{ErrProxy, false},
		{errors.New("x"), false},
	} {
		assert.Equal(t, NoAnswer(c.err), c.want, "%v", c.err)
	}
}

// TestWhyUnanswered: an error of TLS or of the connection names its reason and what to do. Only silence is
// store.ErrUnreachable.
func TestWhyUnanswered(t *testing.T) {
	untrusted := x509.UnknownAuthorityError{}
	for _, c := range []struct {
		err  error
		want error // or nil
		says string
	}{
		{tls.RecordHeaderError{Msg: "first record"}, store.ErrConfig, "server speaks no TLS: plain"},
		{fmt.Errorf("x: %w", http.ErrSchemeMismatch), store.ErrConfig, "server speaks no TLS: plain"},
		{errors.New(tlsAlert + `\x01"`), store.ErrConfig, "server wants TLS"},
		{&tls.CertificateVerificationError{Err: untrusted}, store.ErrConfig, "isn't trusted: " + untrusted.Error() + ": trust"},
		{&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}}, store.ErrConfig, "the certificate of server isn't trusted: x509"},
		{&net.OpError{Op: "remote error", Err: errors.New("bad certificate")}, store.ErrConfig, "TLS with server fails: bad certificate"},
		{fmt.Errorf("x: %w", errors.New("tls: too old")), store.ErrConfig, "TLS with server fails: tls: too old"},
		{&url.Error{Op: "Get", URL: "http://secret", Err: &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}}, store.ErrUnreachable, "server: read tcp: connection reset"},
		{&url.Error{Op: "Get", URL: "http://secret", Err: errors.New("odd")}, nil, "server: odd"},
		{fmt.Errorf("x: %w", io.ErrUnexpectedEOF), store.ErrUnreachable, "the server closed the connection without an answer"},
		{fmt.Errorf("%w: over there", errProxyDown), store.ErrUnreachable, "server: no way through the proxy now: over there"},
	} {
		_, a := Watch(t.Context(), nil)
		assert.OK(t, a.claim(true))
		a.fail(c.err)
		err := a.Unanswered("server", "plain", "trust", c.err)
		assert.That(t, strings.Contains(err.Error(), c.says) && !strings.Contains(err.Error(), "secret"), "%v", err)
		for _, class := range []error{store.ErrConfig, store.ErrUnreachable} {
			assert.Equal(t, errors.Is(err, class), class == c.want, "%v is %v", err, class)
		}
	}
	_, a := Watch(t.Context(), nil)
	assert.OK(t, a.claim(true))
	a.begin()
	a.fail(io.ErrUnexpectedEOF)
	err := a.Unanswered("server", "", "", io.ErrUnexpectedEOF)
	assert.That(t, !errors.Is(err, store.ErrUnreachable) && strings.HasSuffix(err.Error(), "unexpected EOF"), "an answer that broke off: %v", err)
}

// TestProxyRefuses: the refusal of a proxy names it. Only one that might pass is silence. The program's own function is
// asked first.
func TestProxyRefuses(t *testing.T) {
	proxy := &url.URL{Host: "proxy:1"}
	transport := &http.Transport{}
	refusals(transport)
	answer := func(status int) error {
		return transport.OnProxyConnectResponse(t.Context(), proxy, nil, &http.Response{StatusCode: status})
	}
	assert.OK(t, answer(200))
	for status, passes := range map[int]bool{502: true, 503: true, 429: true, 403: false, 407: false} {
		err := answer(status)
		assert.That(t, errors.Is(err, ErrProxy) && NoAnswer(err) == passes && errors.Is(err, store.ErrConfig) == !passes && strings.Contains(err.Error(), "the proxy proxy:1 answers "), "%d: %v", status, err)
	}
	own := errors.New("own")
	transport = &http.Transport{OnProxyConnectResponse: func(context.Context, *url.URL, *http.Request, *http.Response) error { return own }}
	refusals(transport)
	assert.Is(t, answer(200), own)
}

// twice is a decorator that repeats each request.
type twice struct{ *http.Transport }

func (d twice) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	trace.WroteHeaders()
	trace.WroteHeaders()
	return &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}}, nil
}

// TestRepeatedByADecorator: an answer to a write that a decorator has sent twice is an error. A read can be repeated.
// A request that isn't the store's own is neither recorded nor refused.
func TestRepeatedByADecorator(t *testing.T) {
	w := Watched(twice{})
	for method, want := range map[string]error{http.MethodPut: errSentTwice, http.MethodDelete: errSentTwice, http.MethodGet: nil} {
		ctx, a := Watch(t.Context(), nil)
		r, err := http.NewRequestWithContext(ctx, method, "http://h", nil)
		assert.OK(t, err)
		_, err = w.RoundTrip(r)
		assert.Is(t, err, want, method)
		assert.That(t, a.Begun() && !a.Silence(), "%s: a decorator can hide an answer", method)
	}
	ctx, a := Watch(t.Context(), func(*http.Request) bool { return false })
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() {}}), http.MethodPut, "http://h", nil)
	assert.OK(t, err)
	for range 2 {
		assert.OK(t, assert.Err(w.RoundTrip(r)))
	}
	assert.That(t, !a.now().sent && a.Status() == 0, "recorded: %+v", a.now())
}

// replacement is a transport of a program.
type replacement struct{ http.RoundTripper }

// TestBare: a program can replace http.DefaultTransport by any type.
func TestBare(t *testing.T) {
	was := http.DefaultTransport
	defer func() { http.DefaultTransport = was }()
	http.DefaultTransport = &http.Transport{MaxIdleConns: 7}
	assert.Equal(t, Bare().MaxIdleConns, 7)
	http.DefaultTransport = replacement{was}
	assert.Equal(t, Bare().MaxIdleConns, 100)
}
