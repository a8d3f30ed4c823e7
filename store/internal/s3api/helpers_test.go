package s3api_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	miniogo "github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/minio"
	"github.com/repolock/repolock/store/s3"
)

// Handlers play the server in these tests, because a real one doesn't fail on demand. They answer through
// pipes, in simulated time, because minio-go pauses after a failure, although it repeats no request.

// pipes is a listener whose connections are pipes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// onS3 and onMinIO open a store on the bucket of a server with a client library.
func onS3(client aws.HTTPClient) (store.Store, error) {
	return onS3With(client, s3.Options{Prefix: "a/prefix"})
}

func onS3With(client aws.HTTPClient, opts s3.Options) (store.Store, error) {
	return s3.New(awss3.New(awss3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://host:9000"), UsePathStyle: true, HTTPClient: client,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "topsecret"}, nil
		}),
	}), "bucket", opts)
}

func onMinIO(transport http.RoundTripper, set func(*miniogo.Options)) (store.Store, error) {
	opts := &miniogo.Options{Creds: credentials.NewStaticV4("key", "topsecret", ""), Transport: transport, BucketLookup: miniogo.BucketLookupPath}
	set(opts)
	client, err := miniogo.New("host:9000", opts)
	if err != nil {
		return nil, err
	}
	return minio.New(client, "bucket", minio.Options{Prefix: "a/prefix"})
}

// client opens a store whose requests go through a transport.
type client = func(*http.Transport) (store.Store, error)

func viaS3(t *http.Transport) (store.Store, error) { return onS3(&http.Client{Transport: t}) }

func viaMinIO(t *http.Transport) (store.Store, error) { return onMinIO(t, minio.Configure) }

// both runs a test with both client libraries against a handler.
func both(t *testing.T, h http.HandlerFunc, test func(*testing.T, store.Store)) {
	t.Helper()
	for name, client := range map[string]client{"s3": viaS3, "minio": viaMinIO} {
		t.Run(name, func(t *testing.T) { on(t, client, h, test) })
	}
}

// on runs a test with a client against a handler.
func on(t *testing.T, open client, h http.HandlerFunc, test func(*testing.T, store.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipes)
		server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
		served := make(chan error)
		go func() { served <- server.Serve(listener) }()
		defer func() {
			close(listener)
			<-served
			_ = server.Close()
		}()
		s, err := open(&http.Transport{DialContext: listener.dial})
		assert.OK(t, err)
		test(t, s)
	})
}

// served returns the URL of a server that answers by a handler, on a port of this machine.
func served(t *testing.T, h http.HandlerFunc) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// turns answers by the handler that was set last, so that the rows of a table share a server and a store.
type turns struct {
	atomic.Pointer[http.HandlerFunc]
}

func (s *turns) set(h http.HandlerFunc) { s.Store(&h) }

func (s *turns) answer(w http.ResponseWriter, r *http.Request) { (*s.Load())(w, r) }

// say returns a handler that refuses a request with a code of S3's.
func say(status int, code string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if code != "" && r.Method != http.MethodHead {
			fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>the words for %s</Message><RequestId>1</RequestId></Error>", code, code)
		}
	}
}

// as returns a handler that answers with a body of this content type.
func as(kind string, status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func page(status int) http.HandlerFunc {
	return as("text/html; charset=utf-8", status, "<html><body>Log in</body></html>")
}

func text(status int, body string) http.HandlerFunc { return as("text/plain", status, body) }

func xmlError(status int, inner string) http.HandlerFunc {
	return as("application/xml", status, "<Error>"+inner+"</Error>")
}

func redirect(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/login", http.StatusFound)
}

// request is one request of a store.
type request = func(context.Context, store.Store) error

func putting(opts store.PutOptions) request {
	return func(ctx context.Context, s store.Store) error {
		return assert.Err(s.Put(ctx, "index/k", []byte("{}"), opts))
	}
}

var requests = map[string]request{
	"list":          func(ctx context.Context, s store.Store) error { return assert.Err(s.List(ctx, "index/", "")) },
	"get":           func(ctx context.Context, s store.Store) error { _, _, err := s.Get(ctx, "index/k", 100); return err },
	"put":           putting(store.PutOptions{}),
	"put if absent": putting(store.PutOptions{IfAbsent: true}),
	"put if match":  putting(store.PutOptions{IfMatch: "e"}),
	"delete":        func(ctx context.Context, s store.Store) error { return s.Delete(ctx, "index/k") },
	"delete all": func(ctx context.Context, s store.Store) error {
		return assert.Err(store.DeleteAll(ctx, s, []string{"index/k"}))
	},
}

// deleting is a conditional deletion. It isn't in requests, because the store of MinIO sends none.
func deleting(ctx context.Context, s store.Store) error {
	return store.DeleteIfMatch(ctx, s, "index/k", "e")
}
