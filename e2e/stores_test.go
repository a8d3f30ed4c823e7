//go:build unix

package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/internal/test/freeport"
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
	assert.OK(t, err)
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
	assert.OK(t, err)
	return s
}

// newLocker returns a Locker of its own, whose locks need no refresh while a test lasts. A lock with a name
// has no look in between, either.
func newLocker(t testing.TB, url, name string) *replock.Locker {
	t.Helper()
	l, err := replock.New(openStore(t, url), replock.Options{Name: name, TTL: lasting, Look: lasting})
	assert.OK(t, err)
	return l
}

func acquire(t *testing.T, l *replock.Locker, mode replock.Mode) *replock.Lock {
	t.Helper()
	take := l.Shared
	if mode == replock.Exclusive {
		take = l.Exclusive
	}
	k, err := take(t.Context(), "test")
	assert.OK(t, err)
	return k
}

// The application key that the fake knows.
const b2KeyID, b2Key = "000000000000000000000000a", "K000-repolock-e2e"

// fakeB2 is a server of one test. It keeps its objects while it is stopped.
type fakeB2 struct {
	*fakeb2.Server
	t       testing.TB
	address string
	http    *http.Server // nil while it is stopped
	bucket  string       // that has looks at
}

// onB2 starts a server of its own for each test, since one is small.
var onB2 = kind{"b2", startB2, startB2, func(host, bucket string) string {
	return "b2://" + bucket + "/some/prefix?endpoint=http://" + host
}}

func startB2(t testing.TB) server {
	t.Helper()
	n, err := freeport.Free()
	assert.OK(t, err)
	f := &fakeB2{t: t, address: fmt.Sprintf("127.0.0.1:%d", n)}
	f.Server = fakeb2.New(fakeb2.Options{Keys: []fakeb2.Key{{ID: b2KeyID, Secret: b2Key}}})
	f.Start()
	t.Cleanup(f.Kill)
	return f
}

func (f *fakeB2) Endpoint() string { return "http://" + f.address }

func (f *fakeB2) Start() {
	f.t.Helper()
	listener, err := freeport.Listen(f.address)
	assert.OK(f.t, err)
	f.http = &http.Server{Handler: f.Server}
	go func(s *http.Server) { _ = s.Serve(listener) }(f.http)
}

// Kill ends the server, and its clients must sign in again.
func (f *fakeB2) Kill() {
	if f.http != nil {
		_ = f.http.Close()
		f.ExpireTokens()
		f.http = nil
	}
}

func (f *fakeB2) Bucket() string {
	f.t.Helper()
	bucket := "repolock-" + strings.ToLower(rand.Text()[:16])
	f.AddBucket(fakeb2.Bucket{Name: bucket})
	return bucket
}

// Keys lists every version, hidden versions and hide markers too.
func (f *fakeB2) Keys(bucket string) (keys []string) {
	for _, v := range f.Versions(bucket) {
		keys = append(keys, v.Action+" "+v.Name)
	}
	return keys
}

// TestB2: on B2 a lock has one version of each of its objects while it is held and renewed, and
// leaves none, and its steps make these calls. Shared and exclusive locks exclude each other, and a
// holder notices that its lock was broken.
func TestB2(t *testing.T) {
	t.Parallel()
	f, url := b2(t)
	a, b := newLocker(t, url, "b2"), newLocker(t, url, "b2")
	if err := acquire(t, a, replock.Shared).Release(t.Context()); err != nil { // signs in
		t.Fatal(err)
	}
	for mode, calls := range map[replock.Mode]struct{ acquire, renew, release map[string]int }{
		replock.Shared: {
			map[string]int{"b2_upload_file": 1, "b2_list_file_names": 1},
			map[string]int{"b2_list_file_names": 1, "b2_upload_file": 1, "b2_list_file_versions": 1, "b2_delete_file_version": 1},
			map[string]int{"b2_list_file_versions": 1, "b2_delete_file_version": 1},
		},
		replock.Exclusive: {
			map[string]int{"b2_upload_file": 2, "b2_list_file_names": 2},
			map[string]int{"b2_list_file_names": 2, "b2_upload_file": 2, "b2_list_file_versions": 2, "b2_delete_file_version": 2},
			map[string]int{"b2_download_file_by_name": 1, "b2_list_file_versions": 2, "b2_delete_file_version": 2}, // it looks who holds lock.exclusive
		},
	} {
		f.TakeLog()
		k := acquire(t, a, mode)
		f.took("acquire", calls.acquire)
		f.has("acquired", int(mode)) // an exclusive lock has two objects
		assert.Is(t, assert.Err(b.Exclusive(t.Context(), "prune")), replock.ErrHeld)
		if mode == replock.Exclusive {
			assert.Is(t, assert.Err(b.Shared(t.Context(), "backup")), replock.ErrHeld)
		} else if err := acquire(t, b, mode).Release(t.Context()); err != nil {
			t.Error(err)
		}
		for range 3 {
			f.TakeLog()
			assert.Is(t, k.Renew(t.Context()), nil)
			f.took("renew", calls.renew)
			f.has("renewed", int(mode))
		}
		assert.Is(t, k.Release(t.Context()), nil)
		f.took("release", calls.release)
		f.has("released", 0)
	}
	k := acquire(t, a, replock.Exclusive)
	if broken, err := b.Break(t.Context(), replock.BreakOptions{}); err != nil || len(broken) == 0 {
		t.Errorf("%v, %v", broken, err)
	}
	assert.Is(t, k.Renew(t.Context()), replock.ErrLost)
	if err := k.Release(t.Context()); err != nil && !errors.Is(err, replock.ErrLost) {
		t.Error(err)
	}
	f.has("lost", 0)
}

// b2 returns a server, and a repository on it.
func b2(t *testing.T) (*fakeB2, string) {
	at := onB2.on(startB2(t))
	f := at.server.(*fakeB2)
	f.bucket = at.bucket
	return f, at.repo()
}

func (f *fakeB2) has(what string, n int) {
	f.t.Helper()
	if versions := f.Keys(f.bucket); len(versions) != n {
		f.t.Errorf("%s: %d versions, want %d: %q", what, len(versions), n, versions)
	}
}

// took checks the calls since the last time, by name.
func (f *fakeB2) took(what string, want map[string]int) {
	f.t.Helper()
	calls := map[string]int{}
	for _, r := range f.TakeLog() {
		if r.Call != "b2_get_upload_url" { // each of two parallel uploads has a URL, once
			calls[r.Call]++
		}
	}
	assert.That(f.t, maps.Equal(calls, want), "%s took %v, want %v", what, calls, want)
}

// TestB2Failures: a lock survives expired tokens and errors that need another upload URL.
func TestB2Failures(t *testing.T) {
	t.Parallel()
	f, url := b2(t)
	k := acquire(t, newLocker(t, url, "b2"), replock.Exclusive)
	f.ExpireTokens()
	assert.Is(t, k.Renew(t.Context()), nil)
	f.has("renewed with new tokens", 2)
	for _, call := range []string{"b2_upload_file", "b2_list_file_versions", "b2_delete_file_version", "b2_list_file_names"} {
		f.Fail(call, 1, 503, "service_unavailable")
		_ = k.Renew(t.Context()) // this call can fail once
		if err := k.Renew(t.Context()); err != nil {
			t.Errorf("after a failure of %s: %v", call, err)
		}
		f.has("renewed after a failure", 2)
	}
	f.ExpireTokens()
	assert.Is(t, k.Release(t.Context()), nil)
	f.has("released", 0)
}
