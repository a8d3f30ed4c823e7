package s3_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/s3"
	"github.com/repolock/repolock/store/storetest"
)

// inSeconds is a server's clock. Last-Modified has only seconds.
func inSeconds() time.Time { return time.Now().Truncate(time.Second) }

// credentialed sets the credentials that Open finds.
func credentialed(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
}

func open(t *testing.T, raw string) store.Store {
	t.Helper()
	u, err := url.Parse(raw)
	assert.OK(t, err)
	assert.OK(t, s3.Check(u))
	s, err := s3.Open(t.Context(), u)
	assert.OK(t, err)
	return s
}

// TestContractOfAFake: the store keeps its contract on a server in this process. TestContract does the same on MinIO.
func TestContractOfAFake(t *testing.T) {
	credentialed(t)
	var address string
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T) store.Store {
			server := httptest.NewServer(fakes3.NewAt("bucket", inSeconds))
			t.Cleanup(server.Close)
			address = "s3://bucket/a/prefix?conditions=kept&endpoint=" + server.URL
			return open(t, address)
		},
		Reopen: func(t *testing.T, _ store.Store) store.Store { return open(t, address) },
		Light:  true,
	})
}

// TestCheck: what a URL must be, and what a message says that it isn't.
func TestCheck(t *testing.T) {
	for raw, want := range map[string]string{
		"s3://bucket": "", "s3://bucket/": "", "s3://bucket/a/b/": "",
		"s3://bucket?endpoint=h:9000": "", "s3://bucket?endpoint=http://h:9000&region=eu-west-1&path-style=false&conditions=kept&if-match=unquoted": "",
		"s3://bucket?if-match=quoted":                         "",
		"s3://bucket:9000/a":                                  "a server's address goes into endpoint=",
		"s3://bucket?region=x;endpoint=h":                     "write & between its options, and %3B for a ;",
		"s3://bucket?requester-pays=maybe":                    "requester-pays= is true or false",
		"s3://bucket?requester-pays=true":                     "",
		"s3://bucket?endpoint=http://[fe80::1%25eth0]:9000":   "",
		"s3://bucket?endpoint=http://[fe80::1%2525eth0]:9000": "",
		"s3:///a":                               "no bucket is named",
		"s3://b--x-s3":                          "a directory bucket",
		"s3://b--xa-s3":                         "an access point of a directory bucket",
		"s3://bucket/a//b":                      "",
		"s3://bucket?another=1":                 "another",
		"s3://bucket?path-style=maybe":          "path-style",
		"s3://bucket?conditions=maybe":          "conditions",
		"s3://bucket?region=a/b":                "region",
		"s3://bucket?if-match=maybe":            "if-match= is quoted or unquoted",
		"s3://bucket?endpoint=ftp://h":          "an endpoint is https://HOST",
		"s3://bucket?endpoint=http://":          "an endpoint is https://HOST",
		"s3://bucket?endpoint=http://h%23part":  "an endpoint is https://HOST",
		"s3://bucket?endpoint=http://h%3Fquery": "an endpoint is https://HOST",
		"s3://bucket?endpoint=http://u:p@h":     "credentials don't belong in an endpoint",
		"s3://bucket?endpoint=http://h:99999":   "port",
	} {
		u, err := url.Parse(raw)
		assert.OK(t, err)
		err = s3.Check(u)
		if raw == "s3://bucket/a//b" {
			assert.That(t, errors.Is(err, store.ErrURL), "%s: %v", raw, err)
			continue
		}
		if want == "" {
			assert.That(t, err == nil, "%s: %v", raw, err)
			continue
		}
		assert.That(t, errors.Is(err, store.ErrURL) && strings.Contains(err.Error(), want), "%s: %v", raw, err)
		_, err = s3.Open(t.Context(), u)
		assert.That(t, errors.Is(err, store.ErrURL), "%s is opened: %v", raw, err)
	}
}

// TestOpenReadsTheConfiguration: a profile and a region of the URL are used, and an endpoint of the environment is
// checked, too.
func TestOpenReadsTheConfiguration(t *testing.T) {
	credentialed(t)
	for raw, want := range map[string]string{
		"s3://bucket?profile=nobody": "nobody",
		"s3://bucket":                "",
	} {
		u, _ := url.Parse(raw)
		_, err := s3.Open(t.Context(), u)
		assert.That(t, err == nil == (want == "") && (err == nil || errors.Is(err, store.ErrConfig) && strings.Contains(err.Error(), want)), "%s: %v", raw, err)
	}
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
		t.Setenv(name, "h:9000")
		u, _ := url.Parse("s3://bucket")
		_, err := s3.Open(t.Context(), u)
		assert.That(t, errors.Is(err, store.ErrConfig) && strings.Contains(err.Error(), name+": "), "%s: %v", name, err)
	}
	assert.That(t, open(t, "s3://bucket?region=eu-west-1&endpoint=http://h:9000").Properties().IfAbsent == store.Claimed, "any server keeps conditions")
}

// TestTenant: a bucket of a tenant of Ceph's needs an endpoint, and stands in the path, with its colon escaped as the
// gateway does to check the signature.
func TestTenant(t *testing.T) {
	credentialed(t)
	var path string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.EscapedPath()
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	for bucket, want := range map[string]string{"tenant:bucket": "/tenant%3Abucket", ":bucket": "/%3Abucket"} {
		u := &url.URL{Scheme: "s3", Host: bucket, Path: "/p", RawQuery: "endpoint=" + server.URL}
		s, err := s3.Open(t.Context(), u)
		assert.OK(t, err)
		assert.That(t, assert.Err(s.List(t.Context(), "", "")) != nil && path == want, "%s: sent to %s", bucket, path)
		for _, query := range []string{"", "path-style=false&endpoint=" + server.URL} {
			u.RawQuery = query
			assert.Says(t, assert.Err(s3.Open(t.Context(), u)), store.ErrURL, "a bucket of Ceph's gateway")
		}
	}
	for _, bucket := range []string{"a:b:c", "tenant:", "a.b:c"} {
		assert.Is(t, s3.Check(&url.URL{Scheme: "s3", Host: bucket}), store.ErrURL, bucket)
	}
}

// TestRequesterPays: each request has the consent to pay, if the URL gives it.
func TestRequesterPays(t *testing.T) {
	credentialed(t)
	for _, consent := range []string{"", "requester"} {
		n := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n++
			signed := strings.Contains(r.Header.Get("Authorization"), "x-amz-request-payer")
			assert.That(t, r.Header.Get("X-Amz-Request-Payer") == consent && signed == (consent != ""), "%s: %v", r.Method, r.Header)
			w.WriteHeader(http.StatusNotFound)
		}))
		t.Cleanup(server.Close)
		raw := "s3://bucket?endpoint=" + server.URL
		if consent != "" {
			raw += "&requester-pays=true"
		}
		s := open(t, raw)
		ctx := t.Context()
		_, err1 := s.Put(ctx, "k", []byte("{}"), store.PutOptions{})
		_, _, err2 := s.Get(ctx, "k", 10)
		_, err3 := s.List(ctx, "k", "")
		_, err4 := store.DeleteAll(ctx, s, []string{"k"})
		_, err5 := s.(store.Describer).Describe(ctx)
		assert.That(t, err1 != nil && err2 != nil && err3 != nil && err4 != nil && err5 == nil && s.Delete(ctx, "k") != nil, "a 404 is no success")
		assert.That(t, n >= 7, "%d requests", n)
	}
}

// TestVariants: a setting that demands a variant of Amazon's own endpoint doesn't go with another endpoint.
func TestVariants(t *testing.T) {
	for _, variable := range []string{"AWS_USE_DUALSTACK_ENDPOINT", "AWS_USE_FIPS_ENDPOINT"} {
		credentialed(t)
		u := &url.URL{Scheme: "s3", Host: "bucket", RawQuery: "endpoint=http://h"}
		t.Setenv(variable, "false")
		assert.OK(t, assert.Err(s3.Open(t.Context(), u)))
		t.Setenv(variable, "true")
		assert.Says(t, assert.Err(s3.Open(t.Context(), u)), store.ErrConfig, variable+" is for Amazon's own endpoints")
		t.Setenv("AWS_ENDPOINT_URL", "http://h")
		assert.Says(t, assert.Err(s3.Open(t.Context(), &url.URL{Scheme: "s3", Host: "bucket"})), store.ErrConfig, variable)
		os.Unsetenv("AWS_ENDPOINT_URL")
		assert.OK(t, assert.Err(s3.Open(t.Context(), &url.URL{Scheme: "s3", Host: "bucket"})))
		os.Unsetenv(variable)
		config := t.TempDir() + "/config"
		key := strings.ToLower(strings.TrimPrefix(variable, "AWS_"))
		assert.OK(t, os.WriteFile(config, []byte("[default]\n"+key+" = true\n"), 0o600))
		t.Setenv("AWS_CONFIG_FILE", config)
		assert.Says(t, assert.Err(s3.Open(t.Context(), u)), store.ErrConfig, key+" in the AWS configuration file")
	}
}

// TestNewChecksItsOptions: New returns an error for a client and options that can't be used, and relies on conditions
// only of Amazon's own servers.
func TestNewChecksItsOptions(t *testing.T) {
	for name, c := range map[string]struct {
		client awss3.Options
		bucket string
		want   error
	}{
		"no region":    {awss3.Options{}, "bucket", store.ErrConfig},
		"a bad region": {awss3.Options{Region: "a/b"}, "bucket", store.ErrConfig},
		"a bad server": {awss3.Options{Region: "r", BaseEndpoint: aws.String("h:9000")}, "bucket", store.ErrConfig},
		"no bucket":    {awss3.Options{Region: "r"}, "", store.ErrURL},
	} {
		_, err := s3.New(awss3.New(c.client), c.bucket, s3.Options{})
		assert.That(t, errors.Is(err, c.want), "%s: %v", name, err)
	}
	for name, c := range map[string]struct {
		client awss3.Options
		want   store.Condition
	}{
		"Amazon":         {awss3.Options{Region: "r"}, store.Kept},
		"another server": {awss3.Options{Region: "r", BaseEndpoint: aws.String("http://h")}, store.Claimed},
		//lint:ignore SA1019 programs can still set the deprecated resolver
		"a resolver": {awss3.Options{Region: "r", EndpointResolver: awss3.EndpointResolverFromURL("http://h")}, store.Claimed},
	} {
		s, err := s3.New(awss3.New(c.client), "bucket", s3.Options{})
		assert.That(t, err == nil && s.Properties().IfAbsent == c.want, "%s: %v", name, err)
	}
}
