package s3api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/minio"
	"github.com/repolock/repolock/store/s3"
)

// A handler gives these answers, because a real server doesn't at will.

// both runs a test with both client libraries against a handler.
func both(t *testing.T, h http.HandlerFunc, query string, test func(*testing.T, store.Store)) {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	for name, raw := range map[string]string{
		"s3":    "s3://bucket/a/prefix?endpoint=" + url.QueryEscape(server.URL) + query,
		"minio": "minio://" + host + "/bucket/a/prefix?tls=false" + query,
	} {
		t.Run(name, func(t *testing.T) { test(t, openStore(t, raw)) })
	}
}

func openStore(t *testing.T, raw string) store.Store {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "topsecret", "AWS_CONFIG_FILE": "none", "AWS_SHARED_CREDENTIALS_FILE": "none",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "", "AWS_PROFILE": "", "AWS_ENDPOINT_URL": "",
	} {
		t.Setenv(name, value)
	}
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	var s store.Store
	if u.Scheme == "s3" {
		s, err = s3.Open(t.Context(), u)
	} else {
		s, err = minio.Open(t.Context(), u)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// say returns a handler that refuses as S3 does.
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

var requests = map[string]func(context.Context, store.Store) error{
	"list": func(ctx context.Context, s store.Store) error { _, err := s.List(ctx, "index/", ""); return err },
	"get":  func(ctx context.Context, s store.Store) error { _, _, err := s.Get(ctx, "index/k", 100); return err },
	"put": func(ctx context.Context, s store.Store) error {
		_, err := s.Put(ctx, "index/k", []byte("{}"), store.PutOptions{})
		return err
	},
	"put if absent": func(ctx context.Context, s store.Store) error {
		_, err := s.Put(ctx, "index/k", []byte("{}"), store.PutOptions{IfAbsent: true})
		return err
	},
	"put if match": func(ctx context.Context, s store.Store) error {
		_, err := s.Put(ctx, "index/k", []byte("{}"), store.PutOptions{IfMatch: "e"})
		return err
	},
	"delete": func(ctx context.Context, s store.Store) error { return s.Delete(ctx, "index/k") },
}

// TestRefusals: each refusal has its own meaning, which no request confuses with another, and
// its text for a person.
func TestRefusals(t *testing.T) {
	conditional := []string{"put if absent", "put if match"}
	all := []string{"list", "get", "put", "put if absent", "put if match", "delete"}
	repeat := errors.New("may be repeated")
	for _, c := range []struct {
		name    string
		answer  http.HandlerFunc
		of      []string
		want    error
		mention string
	}{
		{"access", say(403, "AccessDenied"), []string{"list"}, store.ErrPermission, "s3:ListBucket"},
		{"access", say(403, "AccessDenied"), []string{"get"}, store.ErrPermission, "s3:GetObject"},
		{"access", say(403, "AccessDenied"), []string{"put", "put if match"}, store.ErrPermission, "s3:PutObject"},
		{"access", say(403, "AccessDenied"), []string{"delete"}, store.ErrPermission, "s3:DeleteObject"},
		{"key", say(403, "InvalidAccessKeyId"), all, store.ErrCredentials, "credentials are wrong"},
		{"signature", say(403, "SignatureDoesNotMatch"), all, store.ErrCredentials, "credentials are wrong"},
		{"expired", say(400, "ExpiredToken"), all, store.ErrCredentials, "expired"},
		{"bucket", say(404, "NoSuchBucket"), all, store.ErrNotFound, `bucket "bucket"`},
		{"region", say(301, "PermanentRedirect", "X-Amz-Bucket-Region", "eu-west-1"), []string{"list", "put", "get"}, store.ErrConfig, "region=eu-west-1"},
		{"malformed", say(400, "AuthorizationHeaderMalformed", "X-Amz-Bucket-Region", "eu-west-1"), all, store.ErrConfig, "region=eu-west-1"},
		{"clock", say(403, "RequestTimeTooSkewed", "Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)), all, store.ErrConfig, "ahead of the server's"},
		{"no such key", say(404, "NoSuchKey"), []string{"get"}, store.ErrNotFound, ""},
		{"no such key", say(404, "NoSuchKey"), []string{"put if match"}, store.ErrPrecondition, ""},
		{"precondition", say(412, "PreconditionFailed"), conditional, store.ErrPrecondition, ""},
		{"not implemented", say(501, "NotImplemented"), conditional, store.ErrConditionUnsupported, ""},
		{"not implemented, in few words", say(501, ""), conditional, store.ErrConditionUnsupported, ""},
		{"invalid argument", say(400, "InvalidArgument"), conditional, store.ErrConditionUnsupported, ""},
		{"conflict", say(409, "ConditionalRequestConflict"), conditional, repeat, "409"},
		{"conflict", say(409, "OperationAborted"), all, repeat, "409"},
		{"slow down", say(503, "SlowDown"), all, repeat, "503 SlowDown"},
		{"throttled", say(429, "TooManyRequests"), all, repeat, "429"},
		{"failure", say(500, "InternalError"), all, repeat, "500"},
		{"gateway", say(502, ""), all, repeat, "502"},
		{"a gateway's page", page(503), all, repeat, "503"},
		{"timeout", say(400, "RequestTimeout"), all, repeat, "RequestTimeout"},
		{"a page", page(200), []string{"list", "put", "put if absent", "delete"}, store.ErrConfig, "isn't an object store"},
		{"a page", page(404), []string{"list", "put", "delete"}, store.ErrConfig, "isn't an object store"},
		{"a text", text(404, "404 page not found"), []string{"list", "put", "delete"}, repeat, "404"},
		{"plain to TLS", text(400, "Client sent an HTTP request to an HTTPS server."), all, store.ErrConfig, "TLS"},
		{"nothing", text(200, ""), []string{"list"}, store.ErrConfig, "isn't an object store"},
		{"nothing", text(200, ""), []string{"put", "put if absent"}, repeat, "no ETag"},
		{"login", redirect, []string{"list", "put", "delete"}, store.ErrConfig, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, c.answer, "", func(t *testing.T, s store.Store) {
				for _, of := range c.of {
					err := requests[of](t.Context(), s)
					switch {
					case err == nil:
						t.Errorf("%s: no error", of)
						continue
					case c.want == repeat && (store.Permanent(err) || errors.Is(err, store.ErrNotFound)):
						t.Errorf("%s: %v: is permanent", of, err)
					case c.want != repeat && !errors.Is(err, c.want):
						t.Errorf("%s: %v, want %v", of, err, c.want)
					}
					for _, other := range []error{store.ErrNotFound, store.ErrPrecondition, store.ErrConditionUnsupported, store.ErrPermission, store.ErrConfig} {
						if !errors.Is(c.want, other) && errors.Is(err, other) {
							t.Errorf("%s: %v is %v too", of, err, other)
						}
					}
					if !strings.Contains(err.Error(), c.mention) || strings.ContainsAny(err.Error(), "\n\r") || len(err.Error()) > 300 {
						t.Errorf("%s: says %q, which should be one line with %q", of, err, c.mention)
					}
				}
			})
		})
	}
}

func page(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		fmt.Fprint(w, "<html><body>Log in</body></html>")
	}
}

func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func redirect(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/login", http.StatusFound)
}

const listing = `<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><Prefix>a/prefix/index/</Prefix><KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated><Contents><Key>a/prefix/index/k</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>2</Size><StorageClass>STANDARD</StorageClass></Contents></ListBucketResult>`

// TestListings: a listing that isn't whole, or not the requested one, is an error. If it
// passed as an empty one, the lock would look free.
func TestListings(t *testing.T) {
	list := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			fmt.Fprint(w, body)
		}
	}
	both(t, list(listing), "", func(t *testing.T, s store.Store) {
		p, err := s.List(t.Context(), "index/", "")
		if err != nil || len(p.Objects) != 1 || p.Objects[0].Key != "index/k" || p.Objects[0].ETag != "e" || p.Now.IsZero() {
			t.Errorf("a good listing gives %+v, %v", p, err)
		}
	})
	bad := map[string]string{
		"empty":        "",
		"blank":        "\n",
		"another root": `<?xml version="1.0"?><Result></Result>`,
		"an error":     `<?xml version="1.0"?><Error><Code>SlowDown</Code></Error>`,
		"html":         "<html></html>",
		"no name":      strings.Replace(listing, "<Name>bucket</Name>", "", 1),
		"other prefix": strings.Replace(listing, "a/prefix/index/<", "a/prefix/<", 1),
		"other key":    strings.Replace(listing, "<Key>a/prefix/index/k", "<Key>b/k", 1),
		"no end":       strings.Replace(listing, "<IsTruncated>false", "<IsTruncated>true", 1),
	}
	for i := 0; i < len(listing)-1; i += 7 {
		bad[fmt.Sprintf("cut at %d", i)] = listing[:i]
	}
	for name, body := range bad {
		both(t, list(body), "", func(t *testing.T, s store.Store) {
			if p, err := s.List(t.Context(), "index/", ""); err == nil {
				t.Errorf("%s: gives %+v", name, p)
			}
		})
	}
}

// TestCutBodies: a body that ends before its length is an error.
func TestCutBodies(t *testing.T) {
	cut := func(w http.ResponseWriter, r *http.Request) {
		body := "{}"
		if r.URL.RawQuery != "" {
			body = listing
			w.Header().Set("Content-Type", "application/xml")
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)+10))
		w.Header().Set("Etag", `"e"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		fmt.Fprint(w, body)
		panic(http.ErrAbortHandler)
	}
	both(t, cut, "", func(t *testing.T, s store.Store) {
		for _, of := range []string{"get", "list"} {
			if err := requests[of](t.Context(), s); err == nil || store.Permanent(err) {
				t.Errorf("%s: %v", of, err)
			}
		}
	})
}

// TestOneRequest: each method sends one request, even if it fails: the engine repeats
// requests, and the library must not.
func TestOneRequest(t *testing.T) {
	for _, status := range []int{0, 200, 500, 503, 429, 404} {
		var n atomic.Int32
		h := func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			switch {
			case status == 0:
				panic(http.ErrAbortHandler)
			case status != 200:
				say(status, "Some")(w, r)
			case r.URL.RawQuery != "" && r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "list-type"):
				fmt.Fprint(w, listing)
			case r.Method == http.MethodDelete:
				w.WriteHeader(204)
			default:
				w.Header().Set("Etag", `"e"`)
				w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			}
		}
		both(t, h, "", func(t *testing.T, s store.Store) {
			for of, send := range requests {
				n.Store(0)
				err := send(t.Context(), s)
				if got := n.Load(); got != 1 {
					t.Errorf("%d: %s: %d requests; %v", status, of, got, err)
				}
			}
		})
	}
}

// TestHanging: the end of a context ends the request on the wire.
func TestHanging(t *testing.T) {
	came, gone := make(chan struct{}, 100), make(chan struct{}, 100)
	both(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		came <- struct{}{}
		<-r.Context().Done() // the connection was closed
		gone <- struct{}{}
	}, "", func(t *testing.T, s store.Store) {
		for of, send := range requests {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-came
				cancel()
			}()
			if err := send(ctx, s); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", of, err)
			}
			select {
			case <-gone:
			case <-time.After(10 * time.Minute):
				t.Errorf("%s: the request is still under way", of)
			}
		}
	})
}

// TestNoConditions: conditions=none sends none.
func TestNoConditions(t *testing.T) {
	both(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s is sent", r.Method) }, "&conditions=none", func(t *testing.T, s store.Store) {
		for _, of := range []string{"put if absent", "put if match"} {
			if err := requests[of](t.Context(), s); !errors.Is(err, store.ErrConditionUnsupported) {
				t.Errorf("%s: %v", of, err)
			}
		}
	})
}

// TestConditionsDeclared: the declared conditions depend on the server and on the URL.
func TestConditionsDeclared(t *testing.T) {
	for raw, want := range map[string]store.Condition{
		"s3://bucket":                                    store.Kept,
		"s3://bucket?conditions=auto":                    store.Claimed,
		"s3://bucket?endpoint=https://h":                 store.Claimed,
		"s3://bucket?endpoint=https://h&conditions=kept": store.Kept,
		"minio://h/bucket":                               store.Claimed,
		"minio://h/bucket?conditions=kept":               store.Kept,
		"minio://h/bucket?conditions=none":               store.Unsupported,
	} {
		if p := openStore(t, raw).Properties(); p.IfAbsent != want || p.IfMatch != want || !p.StoreClock {
			t.Errorf("%s: %+v", raw, p)
		}
	}
}
