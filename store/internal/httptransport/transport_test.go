package httptransport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

type decorated struct{ http.RoundTripper }

// TestBareWithoutDefaultTransport: if a program has replaced http.DefaultTransport, Bare still uses a proxy.
func TestBareWithoutDefaultTransport(t *testing.T) {
	own := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = own })
	http.DefaultTransport = decorated{own}
	bare := Bare()
	assert.That(t, bare.Proxy != nil && bare.MaxIdleConns != 0 && bare.TLSHandshakeTimeout != 0, "%+v", bare)
}

// TestHTTP2IsNotOffered: with any transport of a program, a server that prefers HTTP/2 speaks HTTP/1.1.
func TestHTTP2IsNotOffered(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Proto", r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	trusting := server.Client().Transport.(*http.Transport)
	ours, configured := Bare(), trusting.Clone()
	if ours.TLSClientConfig == nil {
		ours.TLSClientConfig = new(tls.Config)
	}
	ours.TLSClientConfig.RootCAs = trusting.TLSClientConfig.RootCAs
	Configure(configured)
	for name, next := range map[string]*http.Transport{"of a program": trusting, "ours": ours, "configured": configured} {
		on := Watched(next)
		for range 2 {
			r, err := http.NewRequest(http.MethodGet, server.URL, nil)
			assert.OK(t, err)
			res, err := on.RoundTrip(r)
			assert.OK(t, err)
			_ = res.Body.Close()
			assert.Equal(t, res.Header.Get("Proto"), "HTTP/1.1", "%s: the server speaks", name)
		}
	}
}

// closing is a program's decorator that can close idle connections.
type closing struct{ *http.Transport }

// TestFailureDropsConnections: a failure drops the idle connections of the watched transport, but none
// of the program's transport.
func TestFailureDropsConnections(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	program := &http.Transport{}
	t.Cleanup(program.CloseIdleConnections)
	for name, next := range map[string]http.RoundTripper{"the same": program, "decorated": closing{program}} {
		on := Watched(next)
		for _, on := range []http.RoundTripper{program, on} {
			_, _, err := put(t, on, server.URL, "")
			assert.OK(t, err)
		}
		_, _, err := put(t, on, "http://127.0.0.1:1", "")
		assert.That(t, err != nil, "%s: no failure", name)
		_, reused, err := put(t, program, server.URL, "")
		assert.That(t, err == nil && reused, "%s: %v, connection reused: %t", name, err, reused)
		_, reused, err = put(t, on, server.URL, "")
		// A decorated transport has the program's connections.
		assert.That(t, err == nil && reused == (name == "decorated"), "%s: %v, the store's reused: %t", name, err, reused)
	}
}

// put sends a put with a condition. It returns the status, and whether the connection was used before.
func put(t *testing.T, on http.RoundTripper, url, body string) (status int, reused bool, err error) {
	t.Helper()
	trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
	ctx, _ := Watch(httptrace.WithClientTrace(t.Context(), trace), nil)
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, io.NopCloser(strings.NewReader(body)))
	assert.OK(t, err)
	r.ContentLength = int64(len(body))
	r.Header.Set("If-None-Match", "*")
	res, err := on.RoundTrip(r)
	if err != nil {
		return 0, reused, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, reused, nil
}

// TestTryAfterFailureTakesNewConnections: if a server closes each connection after its answer, without a
// notice, one put on a kept connection fails, and then none for a minute.
func TestTryAfterFailureTakesNewConnections(t *testing.T) {
	var served sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, again := served.LoadOrStore(r.RemoteAddr, true); again {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(server.Close)
	for name, next := range map[string]http.RoundTripper{"own": Bare(), "decorated": decorated{new(http.Transport)}} {
		on := Watched(next).(*watched)
		var now time.Duration
		on.elapsed = func() time.Duration { return now }
		try := func() (look, write error) {
			r, err := http.NewRequest(http.MethodGet, server.URL, nil)
			assert.OK(t, err)
			res, look := on.RoundTrip(r)
			if look == nil {
				_ = res.Body.Close()
			}
			_, _, write = put(t, on, server.URL, "body")
			return look, write
		}
		for i, fails := range []bool{true, false, false, true, false} {
			look, write := try()
			assert.That(t, look == nil && (write != nil) == fails, "%s, try %d: %v, %v", name, i, look, write)
			now += 25 * time.Second
		}
	}
}

// TestConditionKeepsItsConnection: a connection is used again after a condition that is met, but not after
// a refused one, whether the server closes it or not. No request is lost, and none is sent twice.
func TestConditionKeepsItsConnection(t *testing.T) {
	var refused, closed atomic.Bool
	var received atomic.Int32
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		received.Add(1)
		if closed.Load() { // as MinIO does, without a notice and without reading the body
			conn, _, err := http.NewResponseController(w).Hijack()
			assert.That(t, err == nil, "%v", err)
			_, _ = io.WriteString(conn, "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 7\r\n\r\nrefused")
			_ = conn.Close()
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if refused.Load() {
			w.WriteHeader(http.StatusPreconditionFailed)
		}
	})
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	programs := &http.Transport{}
	for name, c := range map[string]struct {
		next http.RoundTripper
		url  string
		kept bool
	}{
		"own":                 {Bare(), plain.URL, true},
		"own, TLS":            {secure.Client().Transport, secure.URL, true},
		"the program's":       {programs, plain.URL, true},
		"decorated":           {decorated{programs}, plain.URL, false},
		"its own connections": {&http.Transport{DialTLSContext: new(tls.Dialer).DialContext}, plain.URL, false},
	} {
		t.Run(name, func(t *testing.T) {
			on := Watched(c.next)
			refused.Store(false)
			closed.Store(false)
			received.Store(0)
			for i, want := range []bool{false, c.kept, c.kept} {
				status, reused, err := put(t, on, c.url, "body")
				assert.That(t, status == 200 && reused == want, "put %d: %d, reused %v, %v", i, status, reused, err)
			}
			refused.Store(true)
			for i, want := range []bool{c.kept, false, false, false} {
				closed.Store(i >= 2)
				status, reused, err := put(t, on, c.url, "body")
				assert.That(t, status == 412 && reused == want, "refused put %d: %d, reused %v, %v", i, status, reused, err)
			}
			assert.Equal(t, received.Load(), 7, "requests received")
		})
	}
}

// TestRetiredConnectionSendsNothing: a write to a connection that was retired sends nothing, and returns errRetired.
func TestRetiredConnectionSendsNothing(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	c := &retirable{Conn: client}
	c.retired.Store(true)
	n, err := c.Write([]byte("x"))
	assert.That(t, n == 0 && errors.Is(err, errRetired), "%d bytes, %v", n, err)
}

// TestTLSSessionIsResumed: a later connection to a server resumes the TLS session.
func TestTLSSessionIsResumed(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Connection", "close")
			if r.TLS.DidResume {
				w.WriteHeader(http.StatusAccepted)
			}
		}))
		server.TLS = &tls.Config{MaxVersion: version}
		server.StartTLS()
		t.Cleanup(server.Close)
		transport := Bare()
		transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
		on := Watched(transport)
		for i, want := range []int{200, 202, 202} {
			status, reused, err := put(t, on, server.URL, "body")
			assert.That(t, status == want && !reused, "%s, connection %d: %d; %v", tls.VersionName(version), i, status, err)
		}
	}
}

// TestQuery: an error names an unknown parameter, but shows no text that might be a secret.
func TestQuery(t *testing.T) {
	for query, want := range map[string]map[string]string{
		"":                            {},
		"path-style=true&tls=false":   {"path-style": "true", "tls": "false"},
		"path_style=true":             {"path-style": "true"},
		"path_style=true&path-style=": nil,
	} {
		got, err := Query(&url.URL{RawQuery: query}, "path-style", "tls")
		assert.That(t, (err == nil) == (want != nil), "%q: %v", query, err)
		assert.Equal(t, got, want, "%q", query)
	}
	for query, says := range map[string]string{
		"pathstyle=true":                   `unknown parameter "pathstyle"; known: path-style, tls`,
		"secret_access_key=topsecret":      `unknown parameter "secret_access_key"`,
		"topsecret":                        "unknown parameter, maybe a secret",
		"topsecret=":                       "unknown parameter, maybe a secret",
		"topsecret0=x":                     "unknown parameter, maybe a secret",
		"topsecret%0a=x":                   "unknown parameter, maybe a secret",
		"topsecret%zz":                     "can't be read",
		"tls=":                             "tls= has no value",
		"tls=true&tls=false":               "tls= is there twice",
		"path_style=true&path-style=false": "path-style= is there twice",
	} {
		_, err := Query(&url.URL{RawQuery: query}, "path-style", "tls")
		assert.Says(t, err, store.ErrURL, says, "%q", query)
		assert.That(t, !strings.Contains(fmt.Sprint(err), "topsecret"), "%q: %v", query, err)
	}
}

// TestUnknownNameIsTheProxys: the error for an unknown name shows whether the name is the proxy's.
func TestUnknownNameIsTheProxys(t *testing.T) {
	unknown := &net.OpError{Op: "dial", Err: &net.DNSError{Name: "h", IsNotFound: true}}
	says := func(err error) string { return new(Answer).Unanswered("server", "", "", err).Error() }
	assert.Equal(t, says(fault.New(ErrProxy, "the proxy h:1: %w", unknown)), "the proxy h: no such host")
	assert.Equal(t, says(unknown), "h: no such host")
	advice := fault.Advice(new(Answer).Unanswered("S3 in mars-1", "", "", &net.DNSError{Name: "b.s3.mars-1.amazonaws.com", IsNotFound: true}))
	assert.That(t, strings.HasPrefix(advice, "check the region "), "%s", advice)
	assert.Equal(t, says(&net.DNSError{Name: "h", Err: "busy"}), "server: its name can't be resolved now: busy")
}

// TestUnanswered: the error of a request without an answer has no words of Go's packages.
func TestUnanswered(t *testing.T) {
	for says, err := range map[string]error{
		"server: its name can't be resolved now: network is unreachable": &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
			Name: "h", Server: "192.0.2.1:53", Err: "dial udp 192.0.2.1:53: connect: network is unreachable", IsTemporary: true}},
		"server: the server closed the connection without an answer": fmt.Errorf("get: %w", io.EOF),
		"server: no TLS handshake in time":                           errors.New("net/http: TLS handshake timeout"),
		`wrong configuration: the server at server isn't an object store: it doesn't speak HTTP: malformed HTTP response "SSH-2.0-OpenSSH_9"`: errors.New(`malformed HTTP response "SSH-2.0-OpenSSH_9"`),
		`server: malformed HTTP status code "2"`: errors.New(`malformed HTTP status code "2"`),
		`server: malformed HTTP status code ""`:  errors.New(`malformed HTTP status code ""`),
		`server: malformed HTTP response "HTT"`:  errors.New(`malformed HTTP response "HTT"`), // cut off
	} {
		got := new(Answer).Unanswered("server", "", "", err)
		assert.Equal(t, got.Error(), says)
		assert.That(t, NoAnswer(got) == NoAnswer(err), "%v: another class", got)
	}
}
