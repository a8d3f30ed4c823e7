//go:build linux && programs && minio

package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"
)

// storefront passes the guest's requests on to the store, and measures how long the store
// takes. On a busy machine a look waits for it.
type storefront struct {
	*httptest.Server
	mu       sync.Mutex
	requests int       // those that aren't answered yet
	since    time.Time // when the first of these came
	taken    time.Duration
}

func newStorefront(t *testing.T, endpoint string) *storefront {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	f := &storefront{}
	proxy := &httputil.ReverseProxy{
		// A request is signed for the host that the guest knows.
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host },
		// MinIO closes idle connections, and no request must fail by that.
		Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true},
	}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.add(1)
		defer f.add(-1)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func (f *storefront) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests == 0 {
		f.since = time.Now()
	}
	f.requests += n
	if f.requests == 0 {
		f.taken += time.Since(f.since)
	}
}

// waited returns for how long the guest has waited for the store in all.
func (f *storefront) waited() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken
}
