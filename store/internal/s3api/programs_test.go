package s3api_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	smithyendpoints "github.com/aws/smithy-go/endpoints"
	miniogo "github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/minio"
	"github.com/repolock/repolock/store/s3"
)

// decoratedClient and decorated are an HTTP client and a transport whose transport New can't copy.
type (
	decoratedClient struct{ *http.Client }
	decorated       struct{ http.RoundTripper }
)

// programs are clients of a program's own, which can have retries and timeouts. If the name begins with
// "decorated", the client might hide an answer.
var programs = map[string]func(*http.Transport) (store.Store, error){
	"s3, net/http": func(t *http.Transport) (store.Store, error) {
		return onS3(&http.Client{Transport: t, Timeout: time.Nanosecond})
	},
	"s3, buildable": func(t *http.Transport) (store.Store, error) {
		return onS3(awshttp.NewBuildableClient().WithTimeout(time.Nanosecond).WithTransportOptions(func(own *http.Transport) { own.DialContext = t.DialContext }))
	},
	"decorated, s3": func(t *http.Transport) (store.Store, error) { return onS3(decoratedClient{&http.Client{Transport: t}}) },
	"minio":         func(t *http.Transport) (store.Store, error) { return onMinIO(t, minio.Configure) },
	"minio, twice": func(t *http.Transport) (store.Store, error) {
		return onMinIO(t, func(o *miniogo.Options) { minio.Configure(o); minio.Configure(o) })
	},
	"minio, retries": func(t *http.Transport) (store.Store, error) {
		return onMinIO(t, func(o *miniogo.Options) { minio.Configure(o); o.MaxRetries = 3 })
	},
	"decorated, minio": func(t *http.Transport) (store.Store, error) { return onMinIO(decorated{t}, minio.Configure) },
}

// TestNewSendsOnce: each method sends one request, even if that fails. The store ignores the retries and
// timeouts of a program's client, and sends no checksum but the one that every server knows.
func TestNewSendsOnce(t *testing.T) {
	for name, client := range programs {
		t.Run(name, func(t *testing.T) {
			var n, status atomic.Int32
			on(t, client, func(w http.ResponseWriter, r *http.Request) {
				n.Add(1)
				if h := r.Header; r.Method == http.MethodPut {
					assert.Equal(t, r.URL.Path, "/bucket/a/prefix/index/k")
					assert.That(t, h.Get("Content-Md5") != "", "%v", h)
					assert.Equal(t, h.Get("X-Amz-Trailer")+h.Get("X-Amz-Sdk-Checksum-Algorithm"), "", "other checksums")
				}
				time.Sleep(time.Second) // longer than the clients' own timeouts
				if status.Load() == 0 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Etag", `"e"`)
				w.WriteHeader(int(status.Load()))
			}, func(t *testing.T, s store.Store) {
				for _, code := range []int32{0, 200, 500, 503, 429, 404, 307} {
					for of, send := range requests {
						if of == "delete all" && code == 307 {
							continue // the server has lacked this request before
						}
						n.Store(0)
						status.Store(code)
						err := send(t.Context(), s)
						// An empty object, and a batch whose answer names no key, are successes for some library.
						either := code == 200 && (of == "get" || of == "delete all")
						succeeds := code == 200 && strings.HasPrefix(of, "put")
						assert.That(t, either || (err == nil) == succeeds, "%s, %d: %v", of, code, err)
						assert.That(t, !errors.Is(err, store.ErrListing), "%s, %d: %v", of, code, err)
						want := int32(1)
						if of == "delete" && (code == 200 || code == 404) {
							want = 2 // a listing shows whether the object is gone
						}
						assert.Equal(t, n.Load(), want, "%s, %d: requests", of, code)
					}
				}
			})
		})
	}
}

// TestNewTakesSilenceForSilence: a silent server is unreachable, unless the client might hide an answer.
func TestNewTakesSilenceForSilence(t *testing.T) {
	for name, client := range programs {
		t.Run(name, func(t *testing.T) {
			on(t, client, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(t *testing.T, s store.Store) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := requests["list"](ctx, s)
				silent := !strings.HasPrefix(name, "decorated")
				assert.That(t, err != nil && errors.Is(err, store.ErrUnreachable) == silent, "%v", err)
			})
		})
	}
}

// TestNewRefuses: New returns an error for wrong options, without a request.
func TestNewRefuses(t *testing.T) {
	onS3 := func(region, endpoint, bucket string, opts s3.Options) error {
		return assert.Err(s3.New(awss3.New(awss3.Options{Region: region, BaseEndpoint: &endpoint}), bucket, opts))
	}
	onMinIO := func(set func(*miniogo.Options), bucket string, opts minio.Options) error {
		o := &miniogo.Options{Creds: credentials.NewStaticV4("key", "topsecret", "")}
		set(o)
		client, err := miniogo.New("host:9000", o)
		assert.OK(t, err)
		return assert.Err(minio.New(client, bucket, opts))
	}
	unset := func(*miniogo.Options) {}
	around := func(o *miniogo.Options) { minio.Configure(o); o.Transport = decorated{o.Transport} }
	for name, c := range map[string]struct{ err, want error }{
		"s3: no region":                {onS3("", "http://h", "bucket", s3.Options{}), store.ErrConfig},
		"s3: no URL":                   {onS3("r", "h:9000", "bucket", s3.Options{}), store.ErrConfig},
		"s3: no bucket":                {onS3("r", "http://h", "", s3.Options{}), store.ErrURL},
		"s3: a directory bucket":       {onS3("r", "http://h", "b--x-s3", s3.Options{}), store.ErrURL},
		"s3: its access point":         {onS3("r", "http://h", "b--xa-s3", s3.Options{}), store.ErrURL},
		"s3: no prefix":                {onS3("r", "http://h", "bucket", s3.Options{Prefix: "a//b"}), store.ErrURL},
		"s3: no condition":             {onS3("r", "http://h", "bucket", s3.Options{Conditions: "maybe"}), store.ErrURL},
		"minio: not configured":        {onMinIO(unset, "bucket", minio.Options{}), store.ErrConfig},
		"minio: a transport around it": {onMinIO(around, "bucket", minio.Options{}), store.ErrConfig},
		"minio: no bucket":             {onMinIO(minio.Configure, "", minio.Options{}), store.ErrURL},
		"minio: no prefix":             {onMinIO(minio.Configure, "bucket", minio.Options{Prefix: "a//b"}), store.ErrURL},
		"minio: no condition":          {onMinIO(minio.Configure, "bucket", minio.Options{Conditions: "maybe"}), store.ErrURL},
	} {
		assert.Says(t, c.err, c.want, "", name)
	}
}

// TestUnquoted: an ETag in If-Match has quotes, unless UnquotedIfMatch is set.
func TestUnquoted(t *testing.T) {
	for want, unquoted := range map[string]bool{`"e"`: false, "e": true} {
		on(t, func(t *http.Transport) (store.Store, error) {
			return onS3With(&http.Client{Transport: t}, s3.Options{UnquotedIfMatch: unquoted})
		}, func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, r.Header.Get("If-Match"), want)
			w.Header().Set("Etag", `"e"`)
		}, func(t *testing.T, s store.Store) { does(t, s, "put if match") })
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

// TestRepeatedWritesAreAmbiguous: if the HTTP client has repeated a write, the answer to the last attempt
// is neither a success nor a refusal.
func TestRepeatedWritesAreAmbiguous(t *testing.T) {
	var server turns
	client := func(t *http.Transport) (store.Store, error) { return onS3(&http.Client{Transport: repeating{t}}) }
	on(t, client, server.answer, func(t *testing.T, s store.Store) {
		for _, code := range []int{200, 204, 412} {
			server.set(empty("", code, "e"))
			for _, of := range []string{"put if absent", "delete"} {
				err := requests[of](t.Context(), s)
				assert.That(t, err != nil && !store.Permanent(err), "%s, %d: %v", of, code, err)
				assert.That(t, !errors.Is(err, store.ErrPrecondition) && !errors.Is(err, store.ErrUnreachable), "%s: %v", of, err)
			}
		}
		server.set(empty("", 200, "e"))
		does(t, s, "get")
	})
}

type resolver struct{}

func (resolver) ResolveEndpoint(context.Context, awss3.EndpointParameters) (smithyendpoints.Endpoint, error) {
	return smithyendpoints.Endpoint{}, errors.New("no endpoint")
}

// TestResolversServerIsNotAmazons: because a program's own resolver can return any server, its conditions
// are only claimed, and messages don't name Amazon.
func TestResolversServerIsNotAmazons(t *testing.T) {
	for name, o := range map[string]awss3.Options{
		"version 2": {EndpointResolverV2: resolver{}},
		"version 1": {EndpointResolver: awss3.EndpointResolverFromURL("http://127.0.0.1:1")},
		"both":      {EndpointResolver: awss3.EndpointResolverFromURL("http://127.0.0.1:1"), BaseEndpoint: aws.String("http://h")},
	} {
		o.Region, o.Credentials = "r", aws.AnonymousCredentials{}
		s, err := s3.New(awss3.New(o), "bucket", s3.Options{})
		assert.OK(t, err)
		p := s.Properties()
		assert.That(t, p.IfMatch == store.Claimed && p.IfAbsent == store.Claimed, "%s: %+v", name, p)
		err = requests["list"](t.Context(), s)
		assert.That(t, err != nil && !strings.Contains(fmt.Sprint(err), "S3 in r"), "%s: %v", name, err)
	}
}

// uncached is a provider that requests credentials under the context of each operation.
type uncached struct {
	credentials.Static
	url string
}

func (p *uncached) IsExpired() bool { return true }

func (p *uncached) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	r, err := http.NewRequestWithContext(cmp.Or(cc.Context, context.Background()), http.MethodGet, p.url, nil)
	if err != nil {
		return credentials.Value{}, err
	}
	res, err := cc.Client.Do(r)
	if err != nil {
		return credentials.Value{}, err
	}
	return credentials.Value{AccessKeyID: "key", SecretAccessKey: "topsecret", SignerType: credentials.SignatureV4}, res.Body.Close()
}

// TestProvidersUseTheTransport: a provider of credentials can use minio-go's transport. Its requests don't
// count as the store's, and its answers don't need the form of S3's.
func TestProvidersUseTheTransport(t *testing.T) {
	var puts atomic.Int32
	server := served(t, func(w http.ResponseWriter, r *http.Request) {
		puts.Add(1)
		assert.That(t, strings.Contains(r.Header.Get("Authorization"), "Credential=key/"), "%v", r.Header)
		w.Header().Set("Etag", `"e"`)
	})
	o := &miniogo.Options{Creds: credentials.New(&uncached{url: served(t, text(200, "{}"))})}
	minio.Configure(o)
	client, err := miniogo.New(strings.TrimPrefix(server, "http://"), o)
	assert.OK(t, err)
	s, err := minio.New(client, "bucket", minio.Options{})
	assert.OK(t, err)
	does(t, s, "put")
	assert.Equal(t, puts.Load(), 1, "requests")
}
