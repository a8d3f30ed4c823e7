package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/selfsigned"
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
	f.Proxy, err = New(server.URL)
	assert.OK(t, err)
	t.Cleanup(f.Close)
	t.Cleanup(f.client.CloseIdleConnections)
	return f
}

// do sends a request and reads the answer.
func (f *fixture) do(method, path, body string, header ...string) (res *http.Response, answer string, err error) {
	f.t.Helper()
	r, err := http.NewRequest(method, f.URL()+path, bytes.NewReader([]byte(body)))
	assert.OK(f.t, err)
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

// always returns the behaviour in which each request has this fault.
func always(f Fault) Behaviour {
	return Behaviour{Decide: func(Request) Fault { return f }}
}

// TestFaults: what each fault shows the client, and how often the server gets the request.
func TestFaults(t *testing.T) {
	whole := strings.Repeat("answer", 1000)
	for name, c := range map[string]struct {
		fault  Fault
		want   error // io.EOF: the connection ended before an answer
		status int   // 0: no answer has come
		answer string
		times  int
	}{
		"reset":       {Fault{Reset: true}, syscall.ECONNRESET, 0, "", 0},
		"status":      {Throttled, nil, 503, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>as the test wants</Message></Error>`, 0},
		"lose answer": {Fault{LoseAnswer: true}, io.EOF, 0, "", 1},
		"late":        {Fault{Late: 20 * time.Millisecond}, io.EOF, 0, "", 1},
		"truncate":    {Fault{Truncate: true}, io.ErrUnexpectedEOF, 200, whole[:3000], 1},
		"again":       {Fault{Again: 20 * time.Millisecond}, nil, 200, whole, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, whole)
			f.Behave(always(c.fault))
			res, answer, err := f.do("PUT", "/bucket/key", "body")
			status := 0
			if res != nil {
				status = res.StatusCode
			}
			assert.That(t, errors.Is(err, c.want) && status == c.status && answer == c.answer, "%v, want %v; %d and %d bytes are answered", err, c.want, status, len(answer))
			f.Settle()
			assert.That(t, f.arrived() == c.times && strings.Join(f.sent, "") == strings.Repeat("body", c.times), "%d requests were forwarded: %q", f.arrived(), f.sent)
		})
	}
}

// TestHang: the proxy neither answers nor forwards until the client goes.
func TestHang(t *testing.T) {
	for name, blackhole := range map[string]bool{"hang": false, "blackhole": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "answer")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f.Behave(Behaviour{Blackhole: blackhole, Decide: func(Request) Fault {
				cancel() // it has come
				return Fault{Hang: !blackhole}
			}})
			r, _ := http.NewRequestWithContext(ctx, "PUT", f.URL()+"/bucket/key", strings.NewReader("body"))
			_, err := f.client.Do(r)
			assert.That(t, errors.Is(err, context.Canceled), "%v", err)
			f.Settle()
			assert.That(t, len(f.Take()) == 1 && f.arrived() == 0, "it was forwarded")
		})
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ method, path, body, name, op, key string }{
		{"PUT", "/bucket/index/lock.exclusive", "x", "", "put", "index/lock.exclusive"},
		{"GET", "/bucket/a%20b?x=1", "", "", "get", "a b"},
		{"HEAD", "/bucket/a", "", "", "head", "a"},
		{"DELETE", "/bucket/a", "", "", "delete", "a"},
		{"POST", "/bucket/?delete=", "<Delete/>", "", "delete all", ""},
		{"POST", "/bucket/a?uploads", "", "", "other", "a"},
		{"DELETE", "/bucket/a?versionId=1", "", "", "other", "a"},
		{"GET", "/bucket/?list-type=2&prefix=index%2Flock.", "", "", "list", "index/lock."},
		{"GET", "/bucket?list-type=2&prefix=i", "", "", "list", "i"},
		{"GET", "/bucket/?location", "", "", "other", ""},
		{"GET", "/b2api/v2/b2_authorize_account", "", "", "b2_authorize_account", ""},
		{"POST", "/b2api/v2/b2_list_file_names", `{"prefix":"index/lock."}`, "", "b2_list_file_names", "index/lock."},
		{"POST", "/b2api/v2/b2_hide_file", `{"fileName":"a"}`, "", "b2_hide_file", "a"},
		{"POST", "/b2api/v2/b2_upload_file/bucket/7", "x", "a%20b/c", "b2_upload_file", "a b/c"},
		{"GET", "/file/bucket/a%20b/c", "", "", "b2_download_file_by_name", "a b/c"},
	} {
		f := newFixture(t, "")
		for n := range 2 {
			_, _, err := f.do(c.method, c.path, c.body, "X-Bz-File-Name", c.name)
			assert.OK(t, err)
			log := f.Take()
			assert.Equal(t, len(log), 1, "requests in the log")
			e := log[0]
			assert.That(t, e.Op == c.op && e.Key == c.key && e.N == n+1 && e.Status == 200, "%s %s: %s, want %s %q", c.method, c.path, e, c.op, c.key)
		}
	}
}

func TestTrips(t *testing.T) {
	for _, c := range []struct {
		spans [][2]int
		want  int
	}{
		{nil, 0},
		{[][2]int{{0, 10}}, 1},
		{[][2]int{{0, 10}, {1, 11}}, 1},
		{[][2]int{{0, 10}, {1, 11}, {12, 20}}, 2},
		{[][2]int{{0, 100}, {1, 10}, {11, 20}, {21, 30}}, 3},
		{[][2]int{{11, 20}, {0, 10}}, 2}, // in whatever order they ended
	} {
		var l Log
		for _, s := range c.spans {
			l = append(l, Entry{Start: time.Unix(int64(s[0]), 0), End: time.Unix(int64(s[1]), 0)})
		}
		assert.Equal(t, l.Trips(), c.want, "%v", c.spans)
	}
}

func TestShift(t *testing.T) {
	for name, c := range map[string]struct{ method, path, answer, want string }{
		"list":   {"GET", "/bucket/?list-type=2", "<a><LastModified>2026-11-21T23:45:00.123Z</LastModified></a>", "<a><LastModified>2026-11-22T00:45:00.123Z</LastModified></a>"},
		"b2":     {"POST", "/b2api/v2/b2_list_file_names", `{"uploadTimestamp": 1000, "size": 7}`, `{"uploadTimestamp":3601000, "size": 7}`},
		"object": {"GET", "/bucket/key", "<LastModified>2026-11-21T23:45:00.123Z</LastModified>", "<LastModified>2026-11-21T23:45:00.123Z</LastModified>"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.answer)
			f.Behave(Behaviour{Shift: time.Hour})
			res, answer, err := f.do(c.method, c.path, "")
			assert.That(t, err == nil && answer == c.want, "%v %s", err, answer)
			assert.Equal(t, res.Header.Get("Date"), "Sat, 21 Nov 2026 11:00:00 GMT", "Date")
			assert.Equal(t, res.Header.Get("Last-Modified"), "Sat, 21 Nov 2026 10:30:00 GMT", "Last-Modified")
		})
	}
}

// TestTrafficWithTLS: a proxy counts a connection once, and more bytes than those of the request and its answer.
func TestTrafficWithTLS(t *testing.T) {
	f := newFixture(t, "answer")
	cert, key := selfsigned.Write(t, t.TempDir(), "proxy")
	p, err := NewTLS(f.URL(), cert, key)
	assert.OK(t, err)
	t.Cleanup(p.Close)
	roots := x509.NewCertPool()
	raw, err := os.ReadFile(cert)
	assert.OK(t, err)
	roots.AppendCertsFromPEM(raw)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	t.Cleanup(client.CloseIdleConnections)
	var all []Traffic
	for range 2 {
		before := p.Traffic()
		res, err := client.Get(p.URL() + "/bucket/key")
		assert.OK(t, err)
		body, err := io.ReadAll(res.Body)
		assert.That(t, err == nil && string(body) == "answer", "%q, %v", body, err)
		_ = res.Body.Close()
		all = append(all, p.Traffic().Less(before))
	}
	first, second := all[0], all[1]
	assert.That(t, first.Connections == 1 && second.Connections == 0, "connections: %v", all)
	assert.That(t, second.Sent > 50 && second.Received > 50, "a request: %v", second)
	assert.That(t, first.Sent > second.Sent+200 && first.Received > second.Received+500, "with a handshake: %v", all)
}
