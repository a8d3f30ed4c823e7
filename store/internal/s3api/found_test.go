package s3api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/s3"
)

// What a review found, and what it went looking for and found right.

// TestListedWhole: an object without a size would be an empty one, which is a
// released lock; a shared acquirer reads no further than the first shared lock, so
// an order of the server's own would hide the exclusive ones; and what doesn't say
// whether it goes on may.
func TestListedWhole(t *testing.T) {
	second := strings.Replace(listing, "</Contents>", "</Contents><Contents><Key>a/prefix/index/j</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>2</Size></Contents>", 1)
	for name, body := range map[string]string{
		"no size":             strings.Replace(listing, "<Size>2</Size>", "", 1),
		"an empty size":       strings.Replace(listing, "<Size>2</Size>", "<Size/>", 1),
		"a negative size":     strings.Replace(listing, "<Size>2</Size>", "<Size>-1</Size>", 1),
		"no time":             strings.Replace(listing, "<LastModified>2026-01-01T00:00:00.000Z</LastModified>", "", 1),
		"no word of its end":  strings.Replace(listing, "<IsTruncated>false</IsTruncated>", "", 1),
		"an empty word of it": strings.Replace(listing, "<IsTruncated>false</IsTruncated>", "<IsTruncated/>", 1),
		"no order":            second,
	} {
		if body == listing {
			t.Fatalf("%s: nothing was changed", name)
		}
		t.Run(name, func(t *testing.T) {
			both(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }, "", func(t *testing.T, s store.Store) {
				if p, err := s.List(t.Context(), "index/", ""); err == nil {
					t.Errorf("gives %+v", p)
				}
			})
		})
	}
}

// TestListedTwice: a server that lists a key twice while it is overwritten shows it in its
// newest form, and is no reason to lock anybody out.
func TestListedTwice(t *testing.T) {
	entry := func(key, second, etag string, size int) string {
		return fmt.Sprintf("<Contents><Key>a/prefix/index/%s</Key><LastModified>2026-01-01T00:00:0%s.000Z</LastModified><ETag>&quot;%s&quot;</ETag><Size>%d</Size></Contents>", key, second, etag, size)
	}
	before, _, _ := strings.Cut(listing, "<Contents>")
	for name, c := range map[string]struct{ entries, etag string }{
		"the same":                   {entry("k", "1", "new", 2) + entry("k", "1", "new", 2), "new"},
		"older first":                {entry("k", "1", "old", 2) + entry("k", "2", "new", 2), "new"},
		"newer first":                {entry("k", "2", "new", 2) + entry("k", "1", "old", 2), "new"},
		"three times":                {entry("k", "2", "old", 2) + entry("k", "3", "new", 2) + entry("k", "1", "old", 2), "new"},
		"empty, and then not":        {entry("k", "1", "old", 0) + entry("k", "1", "new", 2), "new"},
		"in doubt it isn't released": {entry("k", "1", "new", 2) + entry("k", "2", "empty", 0), "new"},
	} {
		t.Run(name, func(t *testing.T) {
			body := before + entry("j", "1", "e", 2) + c.entries + entry("l", "1", "e", 2) + "</ListBucketResult>"
			both(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }, "", func(t *testing.T, s store.Store) {
				p, err := s.List(t.Context(), "index/", "")
				if err != nil || len(p.Objects) != 3 || p.Objects[1].Key != "index/k" || p.Objects[1].ETag != c.etag || p.Objects[2].Key != "index/l" {
					t.Errorf("%+v, %v", p.Objects, err)
				}
			})
		})
	}
}

// TestDisorderMayPass: a listing in no order might be in order the next time.
func TestDisorderMayPass(t *testing.T) {
	entry := listing[strings.Index(listing, "<Contents>") : strings.Index(listing, "</Contents>")+len("</Contents>")]
	body := strings.Replace(listing, entry, entry+strings.Replace(entry, "index/k<", "index/j<", 1), 1)
	both(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }, "", func(t *testing.T, s store.Store) {
		if _, err := s.List(t.Context(), "index/", ""); !errors.Is(err, store.ErrListing) || store.Permanent(err) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
	})
}

// TestEmptyPages: an empty answer with an ETag is a success, whatever a server calls it, and
// a refusal in S3's words is one.
func TestEmptyPages(t *testing.T) {
	const html = "text/html; charset=UTF-8"
	both(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", html)
		if r.Method == http.MethodDelete {
			w.WriteHeader(204)
			return
		}
		w.Header().Set("Etag", `"e"`)
	}, "", func(t *testing.T, s store.Store) {
		for _, of := range []string{"put", "put if absent", "put if match", "delete"} {
			if err := requests[of](t.Context(), s); err != nil {
				t.Errorf("%s: %v", of, err)
			}
		}
	})
	both(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", html)
		w.WriteHeader(412)
		fmt.Fprint(w, "<?xml version=\"1.0\"?><Error><Code>PreconditionFailed</Code></Error>")
	}, "", func(t *testing.T, s store.Store) {
		for _, of := range []string{"put if absent", "put if match"} {
			if err := requests[of](t.Context(), s); !errors.Is(err, store.ErrPrecondition) || !strings.Contains(err.Error(), "412") {
				t.Errorf("%s: %v", of, err)
			}
		}
	})
}

// TestPutWithoutETag: a put whose answer has no ETag may be applied, and is tried again.
func TestPutWithoutETag(t *testing.T) {
	for _, kind := range []string{"", "text/html", "application/xml"} {
		for _, status := range []int{200, 201, 202} {
			both(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(status)
			}, "", func(t *testing.T, s store.Store) {
				for _, of := range []string{"put", "put if absent", "put if match"} {
					if err := requests[of](t.Context(), s); err == nil || store.Permanent(err) {
						t.Errorf("%q, %d: %s: %v", kind, status, of, err)
					}
				}
			})
		}
	}
}

// TestOddSuccesses: a success of a kind that S3 doesn't have is none.
func TestOddSuccesses(t *testing.T) {
	etag := func(w http.ResponseWriter) {
		w.Header().Set("Etag", `"e"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
	}
	for name, c := range map[string]struct {
		h  http.HandlerFunc
		of []string
	}{
		"accepted, to be done later": {func(w http.ResponseWriter, _ *http.Request) { etag(w); w.WriteHeader(202) }, []string{"put", "put if match", "delete"}},
		"no content":                 {func(w http.ResponseWriter, _ *http.Request) { etag(w); w.WriteHeader(204) }, []string{"get", "list"}},
		"no ETag": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		}, []string{"get", "put"}},
		"no length": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.0 200 OK\r\nETag: \"e\"\r\nLast-Modified: %s\r\n\r\n", time.Now().UTC().Format(http.TimeFormat))
		}, []string{"get", "list"}},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, c.h, "", func(t *testing.T, s store.Store) {
				for _, of := range c.of {
					if err := requests[of](t.Context(), s); err == nil {
						t.Errorf("%s: no error", of)
					}
				}
			})
		})
	}
}

// TestThrottledByAPage: a proxy that wants less words it in HTML, and is to be asked
// again.
func TestThrottledByAPage(t *testing.T) {
	for _, status := range []int{408, 429} {
		both(t, page(status), "", func(t *testing.T, s store.Store) {
			for of, send := range requests {
				if err := send(t.Context(), s); err == nil || store.Permanent(err) {
					t.Errorf("%d: %s: %v", status, of, err)
				}
			}
		})
	}
}

// TestSkewedAndLost: a put that was refused for its time, and then sent again and
// not answered, may have been written.
func TestSkewedAndLost(t *testing.T) {
	var n atomic.Int32
	both(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 1 {
			say(403, "RequestTimeTooSkewed", "Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))(w, r)
			return
		}
		panic(http.ErrAbortHandler)
	}, "", func(t *testing.T, s store.Store) {
		// The transport repeats what only reads by itself, on another connection.
		for _, of := range []string{"put", "put if absent", "put if match", "delete"} {
			n.Store(0)
			if err := requests[of](t.Context(), s); err == nil || store.Permanent(err) || n.Load() != 2 {
				t.Errorf("%s: %v, %d requests", of, err, n.Load())
			}
		}
	})
}

// TestDeleteAndPutAtOnce: a deletion removes no version that may be newer than it.
func TestDeleteAndPutAtOnce(t *testing.T) {
	deletion, put := make(chan struct{}), make(chan struct{})
	h, _ := versioned(func(w http.ResponseWriter, r *http.Request) {
		if v := r.URL.Query().Get("versionId"); v != "v1" {
			t.Errorf("%s is removed, which was written after the deletion", v)
		}
		w.WriteHeader(204)
	}, say(403, "AccessDenied"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h(w, r)
		if r.Method == http.MethodDelete && !r.URL.Query().Has("versionId") {
			close(deletion)
			<-put
		}
	}))
	t.Cleanup(server.Close)
	s := openStore(t, "s3://bucket/a?endpoint="+url.QueryEscape(server.URL))
	write := requests["put"]
	if err := write(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- requests["delete"](t.Context(), s) }()
	<-deletion
	if err := write(t.Context(), s); err != nil {
		t.Error(err)
	}
	close(put)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestTidyingTakesNothingAway: that old versions can't be removed in time makes no
// failure of a put that was done.
func TestTidyingTakesNothingAway(t *testing.T) {
	h, _ := versioned(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, say(403, "AccessDenied"))
	both(t, h, "", func(t *testing.T, s store.Store) {
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			_, err := s.Put(ctx, "index/k", []byte("{}"), store.PutOptions{})
			if err != nil || ctx.Err() != nil {
				t.Errorf("%v; the context: %v", err, ctx.Err())
			}
			cancel()
		}
	})
}

// TestRetriesByTheEnvironment: what is set for Amazon's own tools makes the SDK
// repeat nothing.
func TestRetriesByTheEnvironment(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "5")
	t.Setenv("AWS_RETRY_MODE", "adaptive")
	var n atomic.Int32
	both(t, func(w http.ResponseWriter, r *http.Request) { n.Add(1); say(503, "SlowDown")(w, r) }, "", func(t *testing.T, s store.Store) {
		for of, send := range requests {
			n.Store(0)
			if err := send(t.Context(), s); err == nil || n.Load() != 1 {
				t.Errorf("%s: %v, %d requests", of, err, n.Load())
			}
		}
	})
}

// TestDirectoryBuckets list in no order, so they are refused.
func TestDirectoryBuckets(t *testing.T) {
	u, err := url.Parse("s3://name--usw2-az1--x-s3/prefix")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openS3(t, u); !errors.Is(err, store.ErrURL) {
		t.Errorf("%v, want %v", err, store.ErrURL)
	}
}

func openS3(t *testing.T, u *url.URL) (store.Store, error) {
	t.Helper()
	return s3.Open(t.Context(), u)
}

// TestPutBesideDelete: MinIO refuses a put now and then because another object is
// deleted at that moment, and not for want of a permission.
func TestPutBesideDelete(t *testing.T) {
	var n, refusals atomic.Int32
	both(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) <= refusals.Load() {
			say(403, "AccessDenied")(w, r)
			return
		}
		w.Header().Set("Etag", `"e"`)
	}, "", func(t *testing.T, s store.Store) {
		for of, send := range requests {
			puts := strings.HasPrefix(of, "put")
			for _, refused := range []int32{1, 2} {
				n.Store(0)
				refusals.Store(refused)
				err := send(t.Context(), s)
				wantN, denied := int32(1), true
				if puts {
					wantN, denied = 2, refused == 2
				}
				if errors.Is(err, store.ErrPermission) != denied || !denied && err != nil || n.Load() != wantN {
					t.Errorf("%s, refused %d times: %d requests; %v", of, refused, n.Load(), err)
				}
			}
		}
	})
}
