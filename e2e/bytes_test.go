//go:build unix && minio

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/internal/test/selfsigned"
	"github.com/repolock/repolock/replock"
)

// certificate makes one for proxies, which the drivers, and programs in Go, trust. The minio driver trusts it
// only in a process without an earlier connection with TLS.
func certificate(t testing.TB) (cert, key string) {
	t.Helper()
	cert, key = selfsigned.Write(t, t.TempDir(), "proxy")
	raw, err := os.ReadFile(cert)
	assert.OK(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(raw)
	transport := http.DefaultTransport.(*http.Transport)
	before := transport.TLSClientConfig
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	t.Cleanup(func() { transport.TLSClientConfig = before })
	t.Setenv("AWS_CA_BUNDLE", cert)
	t.Setenv("SSL_CERT_FILE", cert)
	return cert, key
}

// secured starts a proxy with TLS in front of a server.
func secured(t testing.TB, s server, cert, key string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.NewTLS(s.Endpoint(), cert, key)
	assert.OK(t, err)
	t.Cleanup(p.Close)
	return p
}

// securely is the repository's URL through a proxy with TLS.
func (p place) securely(by *proxy.Proxy) string {
	return strings.NewReplacer("endpoint=http:", "endpoint=https:", "?tls=false", "?tls=true").Replace(p.through(by))
}

// passed returns the requests that have passed the proxy since the last call.
func passed(p *proxy.Proxy) proxy.Log {
	p.Settle()
	return p.Take()
}

// wire is what one step of a lock costs: requests of HTTP, and bytes of TCP's payload, with TLS.
type wire struct{ requests, sent, received int }

func (w wire) less(o wire) wire {
	return wire{w.requests - o.requests, w.sent - o.sent, w.received - o.received}
}

// near reports whether two costs are the same but for the lengths of a date, an address or a number.
func (w wire) near(o wire) bool {
	close := func(a, b int) bool { return max(a, b)-min(a, b) <= 20+max(a, b)/20 }
	return w.requests == o.requests && close(w.sent, o.sent) && close(w.received, o.received)
}

// machines hold a shared lock at the same time in docs/evidence/costs.md.
const machines = 20

// TestBytes measures the bytes of each step of a shared lock, on MinIO and on the tests' B2 server, through a
// proxy with TLS that counts. docs/evidence/costs.md must have them.
func TestBytes(t *testing.T) {
	page, err := os.ReadFile("../docs/evidence/costs.md")
	assert.OK(t, err)
	cert, key := certificate(t)
	for _, c := range []struct {
		name, params string
		kind
	}{{"S3", "&conditions=kept", onS3}, {"S3 claimed", "", onS3}, {"B2", "", onB2}} {
		t.Run(c.name, func(t *testing.T) {
			at := c.on(c.shared(t))
			p := secured(t, at, cert, key)
			for i, got := range measured(t, p, at.securely(p)+c.params, at.repo()+c.params) {
				name := c.name + ", " + steps[i]
				t.Logf("| %s | %d | %d | %d |", name, got.requests, got.sent, got.received)
				if want := written(t, string(page), name); !got.near(want) {
					t.Errorf("%s: docs/evidence/costs.md has %v, not %v", name, want, got)
				}
			}
		})
	}
}

// steps are the steps of a lock that docs/evidence/costs.md counts.
var steps = []string{"connect", "acquire", "look", "first refresh", "refresh", "release"}

// measured measures the steps of the last of the machines. The others hold their locks already.
func measured(t *testing.T, p *proxy.Proxy, url, others string) []wire {
	for range machines - 1 {
		k := acquire(t, newLocker(t, others, ""), replock.Shared)
		t.Cleanup(func() { assert.Is(t, k.Release(context.Background()), nil) })
	}
	var log proxy.Log
	step := func(f func()) wire {
		passed(p)
		before := p.Traffic()
		f()
		log = passed(p)
		after := p.Traffic().Less(before)
		return wire{len(log), after.Sent, after.Received}
	}
	l := newLocker(t, url, "")
	var k *replock.Lock
	take, release := func() { k = acquire(t, l, replock.Shared) }, func() { assert.OK(t, k.Release(t.Context())) }
	first := step(func() { take(); release() })
	bucket := log[0].Op == "list" // which S3 servers other than Amazon's are asked for first
	connect := first.less(step(func() { take(); release() }))
	acquired := step(take)
	look := step(func() { assert.OK(t, k.Check(t.Context())) })
	if bucket {
		connect = connect.less(look)
	}
	renew := func() { assert.OK(t, k.Refresh(t.Context())) }
	return []wire{connect, acquired, look, step(renew), step(renew), step(release)}
}

// written returns a row of a page.
func written(t *testing.T, page, name string) (w wire) {
	t.Helper()
	row := regexp.MustCompile(regexp.QuoteMeta("| "+name+" |") + ` (\d+) \| (\d+) \| (\d+) \|`).FindStringSubmatch(page)
	for i, to := range []*int{&w.requests, &w.sent, &w.received} {
		if row != nil {
			*to, _ = strconv.Atoi(row[i+1])
		}
	}
	return w
}
