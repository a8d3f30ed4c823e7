package s3_test

import (
	"errors"
	"net/http/httptest"
	"net/url"
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
		"s3://bucket?if-match=quoted":           "",
		"s3://bucket:9000/a":                    "a server's address goes into endpoint=",
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
