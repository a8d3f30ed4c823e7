package s3api_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/store"
)

// TestEmptyPages: an empty answer with an ETag is a success, whatever its content type, and a
// refusal in S3's format isn't.
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

// TestPutWithoutETag: a put whose answer has no ETag might be applied, and isn't a permanent
// failure.
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

// TestOddSuccesses: a status that S3 doesn't use for success isn't one.
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

// TestSwallowed: an empty success of a proxy is no deletion.
func TestSwallowed(t *testing.T) {
	both(t, text(200, ""), "", func(t *testing.T, s store.Store) {
		if err := requests["delete"](t.Context(), s); err == nil {
			t.Error("no error")
		}
	})
}
