package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
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

// decorated is an HTTP client that New can't look behind.
type decorated struct{ *http.Client }

var httpClients = map[string]func() aws.HTTPClient{
	"the SDK's own": func() aws.HTTPClient { return nil },
	"HTTPClient":    func() aws.HTTPClient { return s3.HTTPClient() },
	"buildable":     func() aws.HTTPClient { return awshttp.NewBuildableClient().WithTimeout(time.Nanosecond) },
	"net/http":      func() aws.HTTPClient { return &http.Client{Timeout: time.Nanosecond} },
	"decorated":     func() aws.HTTPClient { return decorated{&http.Client{}} },
}

func open(t *testing.T, endpoint string, client aws.HTTPClient) store.Store {
	t.Helper()
	s, err := s3.New(provider(endpoint, client), "bucket", s3.Options{Prefix: "/a/"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNewSendsOnce: the store ignores the retries and timeouts of a program's client, and
// doesn't send its checksums.
func TestNewSendsOnce(t *testing.T) {
	for name, client := range httpClients {
		t.Run(name, func(t *testing.T) {
			var n, status atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n.Add(1)
				if r.URL.Path != "/bucket/a/k" || r.Header.Get("Content-Md5") == "" || r.Header.Get("X-Amz-Trailer")+r.Header.Get("X-Amz-Sdk-Checksum-Algorithm") != "" {
					t.Errorf("%s %v", r.URL, r.Header)
				}
				w.Header().Set("Etag", `"e"`)
				w.WriteHeader(int(status.Load()))
			}))
			t.Cleanup(server.Close)
			s := open(t, server.URL, client())
			for code, fails := range map[int32]bool{200: false, 500: true, 503: true, 307: true} {
				n.Store(0)
				status.Store(code)
				if _, err := s.Put(t.Context(), "k", []byte("x"), store.PutOptions{}); (err != nil) != fails || n.Load() != 1 {
					t.Errorf("%d: %v after %d requests", code, err, n.Load())
				}
			}
		})
	}
}

// TestNewTakesSilenceForSilence: a missing server is unreachable, unless the HTTP client might
// hide its answer.
func TestNewTakesSilenceForSilence(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // it accepts, and answers nothing
	for name, client := range httpClients {
		s := open(t, "http://"+l.Addr().String(), client())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/4)
		_, err := s.List(ctx, "", "")
		cancel()
		if err == nil || errors.Is(err, store.ErrUnreachable) != (name != "decorated") {
			t.Errorf("%s: %v", name, err)
		}
	}
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

// TestConditionsByDefault: Amazon's conditions are kept by default, and other servers' are
// claims.
func TestConditionsByDefault(t *testing.T) {
	endpoint := "http://h"
	for want, client := range map[store.Condition]*awss3.Client{
		store.Kept:    awss3.New(awss3.Options{Region: "r"}),
		store.Claimed: awss3.New(awss3.Options{Region: "r", BaseEndpoint: &endpoint}),
	} {
		s, err := s3.New(client, "bucket", s3.Options{})
		if err != nil || s.Properties().IfMatch != want {
			t.Errorf("%v, %v", s, err)
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
