// Package miniotest is the MinIO server that tests run against: a real one, which e2e/minio.sh
// has started. Tests that need it carry the build tag minio, and fail if there is none.
package miniotest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/sse"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/internal/test/server"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
	"github.com/repolock/repolock/store/storetest"
)

// User and Password are the root's credentials.
const (
	User     = "repolock"
	Password = "repolock-secret"
)

// Endpoint is the server's URL: http://127.0.0.1:9000.
func Endpoint(t testing.TB) string {
	t.Helper()
	endpoint := os.Getenv("REPOLOCK_E2E_MINIO")
	if endpoint == "" {
		t.Fatal("REPOLOCK_E2E_MINIO isn't set: run this by make e2e, which starts MinIO")
	}
	return endpoint
}

// Server is a MinIO server.
type Server struct {
	t       testing.TB
	address string

	// shared is a server that other tests use, too. A test's own server can be stopped and
	// killed, and has the fields below.
	shared  bool
	dir     string
	env     []string
	process *server.Process // nil while it is stopped
}

// Shared returns the server that all tests use.
func Shared(t testing.TB) *Server {
	t.Helper()
	return &Server{t: t, address: strings.TrimPrefix(Endpoint(t), "http://"), shared: true}
}

// Start starts a server for one test as a process, from the program that e2e/minio.sh has
// built, with these settings added. The server ends with the test.
func Start(t testing.TB, env ...string) *Server {
	t.Helper()
	s := &Server{t: t, address: fmt.Sprintf("127.0.0.1:%d", server.Port(t)), dir: t.TempDir(), env: env}
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// Endpoint is the server's URL. It stays the same.
func (s *Server) Endpoint() string { return "http://" + s.address }

// Start starts it again, on the same port and the same data, and waits until it is
// ready.
func (s *Server) Start() {
	s.t.Helper()
	if s.process != nil || s.shared {
		return
	}
	program := os.Getenv("REPOLOCK_E2E_MINIO_BIN")
	if program == "" {
		s.t.Fatal("REPOLOCK_E2E_MINIO_BIN isn't set: run this by make e2e, which builds MinIO")
	}
	cmd := exec.Command(program, "server", "--quiet", "--address", s.address, s.dir)
	cmd.Env = append(os.Environ(),
		"MINIO_ROOT_USER="+User, "MINIO_ROOT_PASSWORD="+Password, "MINIO_BROWSER=off", "MINIO_UPDATE=off")
	cmd.Env = append(cmd.Env, s.env...)
	var err error
	s.process, err = server.Start(cmd, s.ready)
	assert.OK(s.t, err)
}

func (s *Server) ready() bool {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(s.Endpoint() + "/minio/health/ready")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// Stop makes the server end in order: it answers the requests under way.
func (s *Server) Stop() { s.end(os.Interrupt) }

// Kill ends it as a crash does.
func (s *Server) Kill() { s.end(os.Kill) }

func (s *Server) end(sig os.Signal) {
	s.t.Helper()
	if s.shared {
		s.t.Fatal("this server is not the test's own")
	}
	s.process.End(sig)
	s.process = nil
}

// Restart starts it again with these settings added, in place of those before.
func (s *Server) Restart(env ...string) {
	s.t.Helper()
	s.Stop()
	s.env = env
	s.Start()
}

// Client returns a client with the root's rights, to set a test up and to look at its objects.
func (s *Server) Client() *minio.Client {
	s.t.Helper()
	client, err := minio.New(s.address, &minio.Options{Creds: credentials.NewStaticV4(User, Password, "")})
	assert.OK(s.t, err)
	return client
}

// Bucket makes a bucket, and removes it with all objects when the test ends.
func (s *Server) Bucket() string {
	s.t.Helper()
	return s.bucket(minio.MakeBucketOptions{})
}

func (s *Server) bucket(opts minio.MakeBucketOptions) string {
	s.t.Helper()
	client := s.Client()
	bucket := "repolock-" + strings.ToLower(rand.Text()[:16])
	assert.OK(s.t, client.MakeBucket(s.t.Context(), bucket, opts))
	if s.shared { // a test's own server is removed as a whole
		s.t.Cleanup(func() {
			ctx := context.Background() // the test's own has ended
			s.empty(ctx, bucket)
			if err := client.RemoveBucketWithOptions(ctx, bucket, minio.RemoveBucketOptions{}); err != nil {
				s.t.Errorf("bucket %s is left over: %v", bucket, err)
			}
		})
	}
	return bucket
}

// Keys lists the keys of a bucket.
func (s *Server) Keys(bucket string) (keys []string) {
	s.t.Helper()
	for o := range s.Client().ListObjects(s.t.Context(), bucket, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			s.t.Fatal(o.Err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

// empty removes all versions, also retained ones.
func (s *Server) empty(ctx context.Context, bucket string) {
	versions := s.Client().ListObjects(ctx, bucket, minio.ListObjectsOptions{Recursive: true, WithVersions: true})
	for err := range s.Client().RemoveObjects(ctx, bucket, versions, minio.RemoveObjectsOptions{GovernanceBypass: true}) {
		s.t.Errorf("%s: %v", err.ObjectName, err.Err)
	}
}

// Kind is a kind of bucket on the shared server.
type Kind struct{ server, bucket string }

// Buckets makes one of each kind: plain, versioned, with Object Lock and a default
// retention, and encrypted by the server with a key of its KMS: there an ETag is no checksum.
func Buckets(t testing.TB) map[string]Kind {
	t.Helper()
	s := Shared(t)
	kinds := make(map[string]Kind)
	for name, set := range map[string]func(*minio.Client, string) error{
		"plain": func(*minio.Client, string) error { return nil },
		"versioned": func(c *minio.Client, bucket string) error {
			return c.EnableVersioning(t.Context(), bucket)
		},
		"object lock": func(c *minio.Client, bucket string) error {
			mode, days, unit := minio.Governance, uint(1), minio.Days
			return c.SetObjectLockConfig(t.Context(), bucket, &mode, &days, &unit)
		},
		"encrypted": func(c *minio.Client, bucket string) error {
			return c.SetBucketEncryption(t.Context(), bucket, sse.NewConfigurationSSEKMS("repolock")) // the key of e2e/minio/server.env
		},
	} {
		bucket := s.bucket(minio.MakeBucketOptions{ObjectLocking: name == "object lock"})
		if err := set(s.Client(), bucket); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kinds[name] = Kind{s.address, bucket}
	}
	return kinds
}

// Bucket is its name.
func (k Kind) Bucket() string { return k.bucket }

// S3 is the URL of a prefix in the bucket for store/s3, and MinIO for store/minio.
func (k Kind) S3(prefix string) string {
	return "s3://" + k.bucket + "/" + escape(prefix) + "?endpoint=" + url.QueryEscape("http://"+k.server)
}

func (k Kind) MinIO(prefix string) string {
	return "minio://" + k.server + "/" + k.bucket + "/" + escape(prefix) + "?tls=false"
}

func escape(prefix string) string { return strings.ReplaceAll(url.PathEscape(prefix), "%2F", "/") }

// Open opens a URL with the root's rights.
func Open(t testing.TB, url string) store.Store {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": User, "AWS_SECRET_ACCESS_KEY": Password, "MINIO_ROOT_USER": User, "MINIO_ROOT_PASSWORD": Password,
	} {
		t.Setenv(name, value)
	}
	s, err := open.Store(t.Context(), url)
	assert.OK(t, err)
	return s
}

// Contract checks the contract on a bucket of each kind, by the URLs that url returns: Kind.S3
// or Kind.MinIO. light reports whether fewer rounds suffice.
func Contract(t *testing.T, url func(Kind, string) string, light func(kind string) bool) {
	for name, bucket := range Buckets(t) {
		t.Run(name, func(t *testing.T) {
			if name != "plain" {
				rounds.Long(t, "another kind of bucket")
			}
			if name == "encrypted" {
				o, err := Shared(t).Client().PutObject(t.Context(), bucket.bucket, "x", strings.NewReader("x"), 1, minio.PutObjectOptions{})
				const checksum = "9dd4e461268c8034f5c8564e155c67a6"
				assert.That(t, err == nil && o.ETag != checksum, "%v, and an ETag that is a checksum: nothing is tested", err)
			}
			open := func(t *testing.T) store.Store { return Open(t, url(bucket, t.Name())) }
			storetest.Run(t, storetest.Config{
				New:       open,
				Reopen:    func(t *testing.T, _ store.Store) store.Store { return open(t) },
				Precision: time.Second,
				Light:     light(name),
			})
		})
	}
}
