//go:build unix

package e2e

import (
	"context"
	"crypto/rand"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/internal/test/proxy"
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
	kinds    = []kind{onS3, onMinIO, onB2}
	onMinIOs = kinds[:2]
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

// onEach runs a test on each of these kinds of stores.
func onEach(t *testing.T, kinds []kind, run func(*testing.T, kind)) {
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

// site returns a site with this repository.
func (p place) site(t *testing.T) *site {
	return &site{t: t, dir: t.TempDir(), repo: p.repo(), backend: p}
}

// at returns the same site with another repository URL.
func (s *site) at(repo string) *site {
	other := *s
	other.repo = repo
	return &other
}

// proxied starts a proxy in front of a server.
func proxied(t testing.TB, s server, b proxy.Behaviour) *proxy.Proxy {
	t.Helper()
	p, err := proxy.New(s.Endpoint())
	assert.OK(t, err)
	p.Behave(b)
	t.Cleanup(p.Close)
	return p
}

// root signs requests that the proxy has changed.
var root = &proxy.Credentials{User: miniotest.User, Password: miniotest.Password}

// openStore opens a new store on a repository.
func openStore(t testing.TB, url string) store.Store {
	t.Helper()
	s, err := open.Store(context.Background(), url)
	assert.OK(t, err)
	return s
}

// newLocker returns a new Locker, whose locks need no refresh and no look while a test lasts.
func newLocker(t testing.TB, url, name string) *replock.Locker {
	t.Helper()
	l, err := replock.New(openStore(t, url), replock.Options{Name: name, TTL: lasting, Look: lasting, Beside: replock.BesideNobody})
	assert.OK(t, err)
	return l
}

func acquire(t *testing.T, l *replock.Locker, mode replock.Mode) *replock.Lock {
	t.Helper()
	take := l.TryShared
	if mode == replock.Exclusive {
		take = l.TryExclusive
	}
	k, err := take(t.Context(), "test")
	assert.OK(t, err)
	return k
}

// The application key that the fake knows.
const b2KeyID, b2Key = "000000000000000000000000a", "K000-repolock-e2e"

// fakeB2 is a server of one test. It keeps its objects while it is stopped: a proxy stands before it.
type fakeB2 struct {
	*fakeb2.Server
	t     testing.TB
	proxy *proxy.Proxy
}

// onB2 starts a server for each test.
var onB2 = kind{"b2", startB2, startB2, func(host, bucket string) string {
	return "b2://" + bucket + "/some/prefix?endpoint=http://" + host
}}

func startB2(t testing.TB) server {
	t.Helper()
	f := fakeB2{t: t, Server: fakeb2.New(fakeb2.Options{Keys: []fakeb2.Key{{ID: b2KeyID, Secret: b2Key}}})}
	server := httptest.NewServer(f.Server)
	t.Cleanup(server.Close)
	p, err := proxy.New(server.URL)
	assert.OK(t, err)
	t.Cleanup(p.Close)
	f.proxy = p
	return f
}

func (f fakeB2) Endpoint() string { return f.proxy.URL() }
func (f fakeB2) Start()           { f.t.Helper(); assert.OK(f.t, f.proxy.Start()) }

// Kill ends the server, and its clients must sign in again.
func (f fakeB2) Kill() { f.proxy.Stop(); f.ExpireTokens() }

func (f fakeB2) Bucket() string {
	f.t.Helper()
	bucket := "repolock-" + strings.ToLower(rand.Text()[:16])
	f.AddBucket(fakeb2.Bucket{Name: bucket})
	return bucket
}

// Keys lists every version, hidden versions and hide markers too.
func (f fakeB2) Keys(bucket string) (keys []string) {
	for _, v := range f.Versions(bucket) {
		keys = append(keys, v.Action+" "+v.Name)
	}
	return keys
}
