package httptransport

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
)

type decorated struct{ http.RoundTripper }

// TestBareWithoutDefaultTransport: a proxy is used even if a program has replaced
// http.DefaultTransport.
func TestBareWithoutDefaultTransport(t *testing.T) {
	own := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = own })
	http.DefaultTransport = decorated{own}
	if bare := Bare(); bare.Proxy == nil || bare.MaxIdleConns == 0 || bare.TLSHandshakeTimeout == 0 {
		t.Errorf("%+v", bare)
	}
}

// closing is a program's decorator, which can close its transport's connections.
type closing struct{ *http.Transport }

// TestFailureLeavesTheProgramsConnections: a failure drops the connections of the watched
// transport, and not those of the program's, even if it is the same one or decorates it.
func TestFailureLeavesTheProgramsConnections(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	program := &http.Transport{}
	t.Cleanup(program.CloseIdleConnections)
	send := func(t *testing.T, on http.RoundTripper, url string) (reused bool, err error) {
		t.Helper()
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
		ctx, _ := Watch(httptrace.WithClientTrace(t.Context(), trace), nil)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := on.RoundTrip(r)
		if err == nil {
			res.Body.Close()
		}
		return reused, err
	}
	for name, next := range map[string]http.RoundTripper{"the same": program, "decorated": closing{program}} {
		if _, err := send(t, program, server.URL); err != nil {
			t.Fatal(err)
		}
		if _, err := send(t, Watched(next), "http://127.0.0.1:1"); err == nil {
			t.Errorf("%s: no failure", name)
		}
		if reused, err := send(t, program, server.URL); err != nil || !reused {
			t.Errorf("%s: %v, connection reused: %t", name, err, reused)
		}
	}
}
