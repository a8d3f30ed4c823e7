package s3api_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/s3"
)

// verified answers as h if the signature of a request is right, as a server of Amazon's does.
func verified(h http.Handler) http.HandlerFunc {
	return verifiedBy(func() string { return "topsecret" }, h)
}

func verifiedBy(secret func() string, h http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, list, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
		list, _, _ = strings.Cut(list, ",")
		signed := &http.Request{Method: r.Method, URL: r.URL, Host: r.Host, Header: http.Header{}}
		for name := range strings.SplitSeq(list, ";") {
			if name != "host" {
				signed.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
			}
		}
		at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err == nil {
			err = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).SignHTTP(r.Context(),
				aws.Credentials{AccessKeyID: "key", SecretAccessKey: secret()}, signed, r.Header.Get("X-Amz-Content-Sha256"), "s3", "us-east-1", at)
		}
		if err != nil || signed.Header.Get("Authorization") != r.Header.Get("Authorization") {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("<Error><Code>SignatureDoesNotMatch</Code></Error>"))
			return
		}
		h.ServeHTTP(w, r)
	}
}

// TestRotatedSecret: new credentials can have the access key of the old ones.
func TestRotatedSecret(t *testing.T) {
	var secret atomic.Value
	objects := fakes3.New("bucket")
	server := served(t, verifiedBy(func() string { return secret.Load().(string) }, objects))
	for backend, repo := range map[string]string{
		"s3": "s3://bucket?endpoint=" + server, "minio": "minio://" + strings.TrimPrefix(server, "http://") + "/bucket?tls=false",
	} {
		t.Run(backend, func(t *testing.T) {
			settled(t, "AWS_SHARED_CREDENTIALS_FILE="+filepath.Join(t.TempDir(), "credentials"))
			rotate := func(to string) {
				secret.Store(to)
				saved(t, "[default]\naws_access_key_id = key\naws_secret_access_key = "+to+"\n", os.Getenv("AWS_SHARED_CREDENTIALS_FILE"))
			}
			rotate("first")
			s, err := opened(t.Context(), t, repo)
			assert.OK(t, err)
			for _, to := range []string{"first", "second", "third"} {
				rotate(to)
				err := requests["list"](t.Context(), s)
				assert.That(t, err == nil, "the %s secret: %v", to, err)
			}
		})
	}
}

// TestRewrittenHeaders: a proxy can rewrite each header, and drop the length, but for the few that a server of Amazon's
// wants signed, and the conditions. MinIO's library also signs Content-Type. A proxy that drops a condition is noticed:
// the put isn't done without it.
func TestRewrittenHeaders(t *testing.T) {
	for _, backend := range []string{"s3", "minio"} {
		t.Run(backend, func(t *testing.T) {
			keep := []string{"Authorization", "Content-Md5", "If-Match", "If-None-Match"}
			want := []string{"User-Agent"}
			if backend == "s3" {
				want = append(want, "Accept-Encoding", "Content-Type", "Amz-Sdk-Request", "Amz-Sdk-Invocation-Id")
			} else {
				keep = append(keep, "Content-Type")
			}
			var drops string
			rewritten := map[string]bool{}
			objects := fakes3.New("bucket")
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for name := range r.Header {
					if !slices.Contains(keep, name) && !strings.HasPrefix(name, "X-Amz-") {
						rewritten[name] = true
						r.Header.Set(name, "rewritten")
					}
				}
				r.Header.Del(drops)
				r.ContentLength = -1
				r.Header.Set("X-Forwarded-For", "192.0.2.1")
				verified(objects)(w, r)
			}))
			t.Cleanup(server.Close)
			authority := filepath.Join(t.TempDir(), "authority.pem")
			assert.OK(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
			settled(t, append(keys, "AWS_CA_BUNDLE="+authority)...)
			s, err := opened(t.Context(), t, map[string]string{
				"s3": "s3://bucket/a/prefix?endpoint=" + server.URL, "minio": "minio://" + strings.TrimPrefix(server.URL, "https://") + "/bucket/a/prefix",
			}[backend])
			assert.OK(t, err)

			o, err := s.Put(t.Context(), "index/k", []byte("1"), store.PutOptions{IfAbsent: true})
			assert.OK(t, err)
			assert.OK(t, assert.Err(s.Put(t.Context(), "index/k", []byte("2"), store.PutOptions{IfMatch: o.ETag})))
			_, _, err = s.Get(t.Context(), "index/k", 100)
			assert.OK(t, err)
			page, err := s.List(t.Context(), "index/", "")
			assert.That(t, err == nil && len(page.Objects) == 1, "%+v, %v", page, err)
			deleted, err := s.(store.BatchDeleter).DeleteAll(t.Context(), []string{"index/k"})
			assert.That(t, err == nil && deleted[0], "%v, %v", deleted, err)
			assert.OK(t, s.Delete(t.Context(), "index/k"))
			d, err := s.(store.Describer).Describe(t.Context())
			assert.That(t, err == nil && d.Versioning == store.No, "%+v, %v", d, err)
			for _, name := range want {
				assert.That(t, rewritten[name], "no request has %s", name)
			}

			held, err := s.Put(t.Context(), "index/held", []byte("held"), store.PutOptions{})
			assert.OK(t, err)
			for drop, opts := range map[string]store.PutOptions{"If-None-Match": {IfAbsent: true}, "If-Match": {IfMatch: held.ETag + "0"}} {
				drops = drop
				_, err = s.Put(t.Context(), "index/held", []byte("another"), opts)
				assert.Is(t, err, store.ErrConditionUnsupported, drop)
			}
			drops = ""
			body, _, err := s.Get(t.Context(), "index/held", 100)
			assert.That(t, err == nil && string(body) == "held", "%q, %v", body, err)
		})
	}
}

// TestSignedZone: the signature covers Host without the zone of an IPv6 address, as Go sends it, the escaped colon of a
// bucket of Ceph's, and the consent to pay.
func TestSignedZone(t *testing.T) {
	open := func(transport *http.Transport) (store.Store, error) {
		return s3.New(awss3.New(awss3.Options{
			Region: "us-east-1", BaseEndpoint: aws.String("http://[fe80::1%25eth0]:9000"), UsePathStyle: true,
			HTTPClient: &http.Client{Transport: transport}, Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "topsecret"}, nil
			}),
		}), "tenant:bucket", s3.Options{Prefix: "a/prefix", RequesterPays: true})
	}
	objects := verified(fakes3.New("tenant:bucket"))
	on(t, open, func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "[fe80::1]:9000" || !strings.HasPrefix(r.URL.EscapedPath(), "/tenant%3Abucket") || r.Header.Get("X-Amz-Request-Payer") != "requester" {
			t.Errorf("%s %s on %s, %v", r.Method, r.URL, r.Host, r.Header)
		}
		objects(w, r)
	}, func(t *testing.T, s store.Store) {
		for _, of := range []string{"put", "get", "list", "delete", "delete all"} {
			assert.Is(t, requests[of](t.Context(), s), nil, of)
		}
	})
}
