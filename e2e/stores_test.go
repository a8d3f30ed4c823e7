//go:build unix && minio

package e2e

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

// kind is a driver on a server.
type kind struct {
	name string
	// shared is the server of all tests, and own a server for one test.
	shared, own func(testing.TB) server
	// url names a repository in a bucket of the server at the host, or behind a proxy there.
	url func(host, bucket string) string
}

// server is the server of a bucket.
type server interface {
	Endpoint() string
	Bucket() string
	Keys(bucket string) []string
	// Kill ends a test's own server as a crash does, until Start.
	Kill()
	Start()
}

var (
	sharedMinIO = func(t testing.TB) server { return miniotest.Shared(t) }
	ownMinIO    = func(t testing.TB) server { return miniotest.Start(t) }
)

var (
	onS3 = kind{"s3", sharedMinIO, ownMinIO, func(host, bucket string) string {
		return "s3://" + bucket + "/some/prefix?region=us-east-1&path-style=true&endpoint=http://" + host
	}}
	onMinIO = kind{"minio", sharedMinIO, ownMinIO, func(host, bucket string) string {
		return "minio://" + host + "/" + bucket + "/some/prefix?tls=false"
	}}
	kinds = []kind{onS3, onMinIO, onB2}
)

// The credentials are in the environment of the tests and of their processes, and nothing else
// is that the drivers' chains look for.
func init() {
	for name, value := range credentials {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

var credentials = map[string]string{
	"AWS_ACCESS_KEY_ID": miniotest.User, "AWS_SECRET_ACCESS_KEY": miniotest.Password,
	"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	"MINIO_ACCESS_KEY": miniotest.User, "MINIO_SECRET_KEY": miniotest.Password,
	"B2_APPLICATION_KEY_ID": b2KeyID, "B2_APPLICATION_KEY": b2Key,
}

// onEach runs a test on each kind of store.
func onEach(t *testing.T, run func(*testing.T, kind)) {
	t.Helper()
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			run(t, k)
		})
	}
}

// place is a bucket on a server.
type place struct {
	kind
	server
	bucket string
}

func (k kind) on(s server) place { return place{k, s, s.Bucket()} }

func (p place) host() string { return strings.TrimPrefix(p.Endpoint(), "http://") }

// repo is the repository's URL, and through its URL behind a proxy.
func (p place) repo() string                      { return p.url(p.host(), p.bucket) }
func (p place) through(proxy *proxy.Proxy) string { return p.url(proxy.Host(), p.bucket) }

func (p place) away()          { p.Kill() }
func (p place) back()          { p.Start() }
func (p place) left() []string { return p.Keys(p.bucket) }

// site returns a site whose repository is there.
func (p place) site(t *testing.T) *site {
	return &site{t: t, dir: t.TempDir(), repo: p.repo(), backend: p}
}

// at returns the same site with the repository at another URL.
func (s *site) at(repo string) *site {
	other := *s
	other.repo = repo
	return &other
}

// proxied starts a proxy in front of a server.
func proxied(t testing.TB, s server, b proxy.Behaviour) *proxy.Proxy {
	t.Helper()
	p, err := proxy.New(s.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	p.Behave(b)
	t.Cleanup(p.Close)
	return p
}

// root signs requests that the proxy has changed.
var root = &proxy.Credentials{User: miniotest.User, Password: miniotest.Password}

// openStore opens a store of its own on a repository.
func openStore(t testing.TB, url string) store.Store {
	t.Helper()
	s, err := open.Store(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newLocker returns a Locker of its own with the shortest ttl.
func newLocker(t testing.TB, url string) *replock.Locker {
	t.Helper()
	return lockerOf(t, url, ttl)
}

// newLasting returns a Locker whose locks need no refresh while a test lasts.
func newLasting(t testing.TB, url string) *replock.Locker {
	t.Helper()
	return lockerOf(t, url, lasting)
}

func lockerOf(t testing.TB, url string, ttl time.Duration) *replock.Locker {
	t.Helper()
	l, err := replock.New(openStore(t, url), replock.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newLockers(t testing.TB, n int, one func(testing.TB, string) *replock.Locker, url string) (lockers []*replock.Locker) {
	t.Helper()
	for range n {
		lockers = append(lockers, one(t, url))
	}
	return lockers
}

// TestOnStores runs the scenarios on every store. A scenario that stops its server has one of
// its own.
func TestOnStores(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		for _, c := range scenarios {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				start := k.shared
				if c.outage {
					rounds.Long(t, "an outage lasts for a ttl, on a server of its own")
					start = k.own
				}
				c.run(k.on(start(t)).site(t))
			})
		}
	})
}
