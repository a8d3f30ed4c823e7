package s3api_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	miniogo "github.com/minio/minio-go/v7"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/minio"
)

// decoratedClient and decorated are an HTTP client and a transport that New can't look behind.
type (
	decoratedClient struct{ *http.Client }
	decorated       struct{ http.RoundTripper }
)

// programs are clients of a program's own, which can repeat requests and have timeouts. Those whose names
// begin with "decorated" might hide an answer.
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
	"minio, retries, no region": func(t *http.Transport) (store.Store, error) {
		return onMinIO(t, func(o *miniogo.Options) { minio.Configure(o); o.Region, o.MaxRetries = "", 3 })
	},
	"decorated, minio": func(t *http.Transport) (store.Store, error) { return onMinIO(decorated{t}, minio.Configure) },
	"decorated, minio, no region": func(t *http.Transport) (store.Store, error) {
		return onMinIO(decorated{t}, func(o *miniogo.Options) { minio.Configure(o); o.Region = "" })
	},
}

// TestNewSendsOnce: each method sends one request, even if it fails: the engine repeats requests, and the
// library must not. The store ignores the retries and timeouts of a program's client, and sends no checksum
// but the one that every server knows. minio-go can also request the bucket's region.
func TestNewSendsOnce(t *testing.T) {
	for name, client := range programs {
		t.Run(name, func(t *testing.T) {
			var n, status atomic.Int32
			on(t, client, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Has("location") {
					w.Header().Set("Connection", "close") // lest the transport repeats a request whose connection is cut
					as("application/xml", 200, `<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/">eu-west-1</LocationConstraint>`)(w, r)
					return
				}
				n.Add(1)
				if h := r.Header; r.Method == http.MethodPut && (r.URL.Path != "/bucket/a/prefix/index/k" || h.Get("Content-Md5") == "" || h.Get("X-Amz-Trailer")+h.Get("X-Amz-Sdk-Checksum-Algorithm") != "") {
					t.Errorf("%s %v", r.URL, h)
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
							continue // it isn't sent any more
						}
						n.Store(0)
						status.Store(code)
						err := send(t.Context(), s)
						// An empty object, and a batch in which no key is named, are successes of some library.
						either := code == 200 && (of == "get" || of == "delete all")
						if !either && (err == nil) != (code == 200 && strings.HasPrefix(of, "put")) || n.Load() != 1 || errors.Is(err, store.ErrListing) {
							t.Errorf("%s, %d: %v after %d requests", of, code, err, n.Load())
						}
					}
				}
			})
		})
	}
}

// TestNewTakesSilenceForSilence: a server that answers nothing is unreachable, unless the client might hide
// its answer.
func TestNewTakesSilenceForSilence(t *testing.T) {
	for name, client := range programs {
		t.Run(name, func(t *testing.T) {
			on(t, client, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(t *testing.T, s store.Store) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := requests["list"](ctx, s); err == nil || errors.Is(err, store.ErrUnreachable) == strings.HasPrefix(name, "decorated") {
					t.Error(err)
				}
			})
		})
	}
}
