package minio_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	api "github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/minio"
)

// client is a program's client.
func client(t *testing.T, host string, set func(*api.Options)) *api.Client {
	t.Helper()
	o := &api.Options{Creds: credentials.NewStaticV4("key", "secret", "")}
	set(o)
	c, err := api.New(host, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func open(t *testing.T, host string, set func(*api.Options)) store.Store {
	t.Helper()
	s, err := minio.New(client(t, host, set), "bucket", minio.Options{Prefix: "a"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// decorated is a transport that New can't look behind.
type decorated struct{ http.RoundTripper }

// TestNewRefuses: New returns an error for options that can't work, before a request is sent.
func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		set    func(*api.Options)
		bucket string
		opts   minio.Options
		want   error
	}{
		"not configured": {func(*api.Options) {}, "bucket", minio.Options{}, store.ErrConfig},
		"a transport around it": {func(o *api.Options) { minio.Configure(o); o.Transport = decorated{o.Transport} },
			"bucket", minio.Options{}, store.ErrConfig},
		"no bucket":    {minio.Configure, "", minio.Options{}, store.ErrURL},
		"no prefix":    {minio.Configure, "bucket", minio.Options{Prefix: "a//b"}, store.ErrURL},
		"no condition": {minio.Configure, "bucket", minio.Options{Conditions: "maybe"}, store.ErrURL},
	} {
		if _, err := minio.New(client(t, "host:9000", c.set), c.bucket, c.opts); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// uncached is a provider that requests credentials under the context of each operation, and
// fails if the answer isn't passed on.
type uncached struct {
	credentials.Static
	url string
}

func (p *uncached) IsExpired() bool { return true }

func (p *uncached) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	ctx := cc.Context
	if ctx == nil {
		ctx = context.Background()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return credentials.Value{}, err
	}
	res, err := cc.Client.Do(r)
	if err != nil {
		return credentials.Value{}, err
	}
	return credentials.Value{AccessKeyID: "key", SecretAccessKey: "secret", SignerType: credentials.SignatureV4}, res.Body.Close()
}

// TestProvidersUseTheTransport: a provider of credentials can use the client's transport. Its
// requests don't count as the operation's, and its answers need not be S3's.
func TestProvidersUseTheTransport(t *testing.T) {
	imds := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/latest/meta-data/iam/security-credentials/":
			w.Write([]byte("role"))
		default:
			w.Write([]byte(`{"Code":"Success","AccessKeyId":"key","SecretAccessKey":"secret","Expiration":"2999-01-01T00:00:00Z"}`))
		}
	}))
	t.Cleanup(imds.Close)
	var puts atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if puts.Add(1); !strings.Contains(r.Header.Get("Authorization"), "Credential=key/") {
			t.Error(r.Header)
		}
		w.Header().Set("Etag", `"e"`)
	}))
	t.Cleanup(server.Close)
	for _, name := range []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Setenv(name, "")
	}
	for name, creds := range map[string]*credentials.Credentials{
		"the machine's role": credentials.NewIAM(imds.URL),
		"uncached":           credentials.New(&uncached{url: imds.URL}),
	} {
		puts.Store(0)
		s := open(t, strings.TrimPrefix(server.URL, "http://"), func(o *api.Options) { o.Creds = creds; minio.Configure(o) })
		if _, err := s.Put(t.Context(), "k", []byte("x"), store.PutOptions{}); err != nil || puts.Load() != 1 {
			t.Errorf("%s: %v after %d requests", name, err, puts.Load())
		}
	}
}
