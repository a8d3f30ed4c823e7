package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	smithyendpoints "github.com/aws/smithy-go/endpoints"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/s3"
)

// provider is a program's client, with retries and some HTTP client.
func provider(endpoint string, client aws.HTTPClient) *awss3.Client {
	return awss3.New(awss3.Options{
		Region: "us-east-1", BaseEndpoint: &endpoint, UsePathStyle: true, HTTPClient: client,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	})
}

func open(t *testing.T, endpoint string, client aws.HTTPClient) store.Store {
	t.Helper()
	s, err := s3.New(provider(endpoint, client), "bucket", s3.Options{Prefix: "/a/"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNewTakesNoAnswerForSilence: if an HTTP client got an answer and then returns a timeout,
// the server doesn't count as unreachable.
func TestNewTakesNoAnswerForSilence(t *testing.T) {
	s := open(t, "http://127.0.0.1:1", failing{})
	if _, err := s.List(t.Context(), "", ""); err == nil || errors.Is(err, store.ErrUnreachable) {
		t.Error(err)
	}
}

type failing struct{}

func (failing) Do(*http.Request) (*http.Response, error) { return nil, context.DeadlineExceeded }

// noted is an HTTP client that notes the condition of a put, and answers with a success.
type noted struct{ ifMatch string }

func (n *noted) Do(r *http.Request) (*http.Response, error) {
	n.ifMatch = r.Header.Get("If-Match")
	return &http.Response{StatusCode: 200, Header: http.Header{"Etag": {`"e"`}}, Body: http.NoBody, Request: r}, nil
}

// TestUnquoted: ETags in If-Match have quotes, unless the options say otherwise.
func TestUnquoted(t *testing.T) {
	for want, unquoted := range map[string]bool{`"x"`: false, "x": true} {
		var client noted
		s, err := s3.New(provider("http://h", &client), "bucket", s3.Options{UnquotedIfMatch: unquoted})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), "k", nil, store.PutOptions{IfMatch: "x"}); err != nil || client.ifMatch != want {
			t.Errorf("unquoted %t: If-Match: %s, %v", unquoted, client.ifMatch, err)
		}
	}
}

// TestNewRefuses: New returns an error for options that can't work, before a request is sent.
func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		region, endpoint, bucket string
		opts                     s3.Options
		want                     error
	}{
		"no region":          {"", "http://h", "bucket", s3.Options{}, store.ErrConfig},
		"no URL":             {"r", "h:9000", "bucket", s3.Options{}, store.ErrConfig},
		"no bucket":          {"r", "http://h", "", s3.Options{}, store.ErrURL},
		"a directory bucket": {"r", "http://h", "b--x-s3", s3.Options{}, store.ErrURL},
		"no prefix":          {"r", "http://h", "bucket", s3.Options{Prefix: "a//b"}, store.ErrURL},
		"no condition":       {"r", "http://h", "bucket", s3.Options{Conditions: "maybe"}, store.ErrURL},
	} {
		client := awss3.New(awss3.Options{Region: c.region, BaseEndpoint: &c.endpoint})
		if _, err := s3.New(client, c.bucket, c.opts); !errors.Is(err, c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// repeating is a transport that sends each request twice, and returns the second answer.
type repeating struct{ http.RoundTripper }

func (t repeating) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	for n := 0; ; n++ {
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		res, err := t.RoundTripper.RoundTrip(again)
		if n == 1 || err != nil {
			return res, err
		}
		res.Body.Close()
	}
}

// TestRepeatedWritesAreAmbiguous: the answer to a write that the HTTP client has repeated is
// that of the last attempt only, so it is neither a success nor a refusal.
func TestRepeatedWritesAreAmbiguous(t *testing.T) {
	var status atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"e"`)
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(server.Close)
	s := open(t, server.URL, &http.Client{Transport: repeating{&http.Transport{}}})
	for _, code := range []int32{200, 204, 412} {
		status.Store(code)
		_, put := s.Put(t.Context(), "k", []byte("x"), store.PutOptions{IfAbsent: true})
		for op, err := range map[string]error{"put": put, "delete": s.Delete(t.Context(), "k")} {
			if err == nil || store.Permanent(err) || errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrUnreachable) {
				t.Errorf("%s, %d: %v", op, code, err)
			}
		}
	}
	status.Store(200)
	if _, _, err := s.Get(t.Context(), "k", 100); err != nil {
		t.Errorf("get: %v", err)
	}
}

type resolver struct{}

func (resolver) ResolveEndpoint(context.Context, awss3.EndpointParameters) (smithyendpoints.Endpoint, error) {
	return smithyendpoints.Endpoint{}, errors.New("no endpoint")
}

// TestResolversServerIsNotAmazons: a program's own resolver can return any server, so that its
// conditions are claims, and messages don't name Amazon.
func TestResolversServerIsNotAmazons(t *testing.T) {
	for name, o := range map[string]awss3.Options{
		"version 2": {EndpointResolverV2: resolver{}},
		"version 1": {EndpointResolver: awss3.EndpointResolverFromURL("http://127.0.0.1:1")},
		"both":      {EndpointResolver: awss3.EndpointResolverFromURL("http://127.0.0.1:1"), BaseEndpoint: aws.String("http://h")},
	} {
		o.Region, o.Credentials = "r", aws.AnonymousCredentials{}
		s, err := s3.New(awss3.New(o), "bucket", s3.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if p := s.Properties(); p.IfMatch != store.Claimed || p.IfAbsent != store.Claimed {
			t.Errorf("%s: %+v", name, p)
		}
		if _, err := s.List(t.Context(), "", ""); err == nil || strings.Contains(err.Error(), "S3 in r") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// opened returns the store of a URL, with these credentials, or without any.
func opened(t *testing.T, raw, key string) store.Store {
	t.Helper()
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", key)
	missing := filepath.Join(t.TempDir(), "missing")
	t.Setenv("AWS_CONFIG_FILE", missing)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", missing)
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	s, err := s3.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOpenAsksOnceForCredentials: the service is asked once for each request of the lock. If
// it has no credentials, the request must fail in time.
func TestOpenAsksOnceForCredentials(t *testing.T) {
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	for name, most := range map[string]int32{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": 1,
		"AWS_EC2_METADATA_SERVICE_ENDPOINT":  2, // a token, and the role
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, server.URL)
			n.Store(0)
			if _, err := opened(t, "s3://bucket?endpoint=http://127.0.0.1:1", "").List(context.Background(), "x", ""); err == nil || n.Load() > most {
				t.Errorf("%v after %d requests", err, n.Load())
			}
		})
	}
}

// TestDefaultsModeKeepsTimeouts: AWS_DEFAULTS_MODE doesn't replace the timeouts for
// connecting.
func TestDefaultsModeKeepsTimeouts(t *testing.T) {
	client := awss3.New(awss3.Options{DefaultsMode: aws.DefaultsModeInRegion, HTTPClient: s3.HTTPClient()}).Options().HTTPClient
	if c, ok := client.(*http.Client); !ok || c.Transport.(*http.Transport).TLSHandshakeTimeout != 5*time.Second {
		t.Errorf("the SDK has rebuilt HTTPClient: %T", client)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // it accepts, and answers nothing
	t.Setenv("AWS_DEFAULTS_MODE", "in-region")
	s := opened(t, "s3://bucket?endpoint=https://"+l.Addr().String(), "key")
	ctx, cancel := context.WithTimeout(t.Context(), 1300*time.Millisecond) // in-region has 1.1 s for TLS
	defer cancel()
	if _, err := s.List(ctx, "x", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
