package proxy

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// fixture is a proxy in front of a server that keeps the requests.
type fixture struct {
	*Proxy
	t      *testing.T
	client *http.Client

	mu   sync.Mutex
	got  []*http.Request
	sent []string // the bodies
}

// newFixture returns a fixture whose server answers every request with body.
func newFixture(t *testing.T, body string) *fixture {
	t.Helper()
	f := &fixture{t: t, client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		f.got, f.sent = append(f.got, r), append(f.sent, string(raw))
		f.mu.Unlock()
		w.Header().Set("Date", "Sat, 21 Nov 2026 10:00:00 GMT")
		w.Header().Set("Last-Modified", "Sat, 21 Nov 2026 09:30:00 GMT")
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	var err error
	if f.Proxy, err = New(server.URL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	t.Cleanup(f.client.CloseIdleConnections)
	return f
}

// do sends a request and reads the answer.
func (f *fixture) do(method, path, body string, header ...string) (res *http.Response, answer string, err error) {
	f.t.Helper()
	r, err := http.NewRequest(method, f.URL()+path, bytes.NewReader([]byte(body)))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if res, err = f.client.Do(r); err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return res, string(raw), err
}

func (f *fixture) arrived() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.got)
}

// within waits for an event in the background.
func (f *fixture) within(d time.Duration, what string, cond func() bool) {
	f.t.Helper()
	for end := time.Now().Add(d); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("waited %v for: %s", d, what)
		}
	}
}

// always gives each request the same fault.
func always(f Fault) Behaviour {
	return Behaviour{Decide: func(Request) Fault { return f }}
}

func contains(t *testing.T, s, want string) {
	t.Helper()
	if !strings.Contains(s, want) {
		t.Errorf("%q isn't in: %s", want, s)
	}
}
