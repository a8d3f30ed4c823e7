package s3api_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/store"
)

// pages answers each listing with the same page, which always has a next one, and counts the
// requests.
func pages(listing string, n *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) > 300 {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(w, listing)
	}
}

// TestListingsEnd: a server whose listings have no end isn't asked for ever.
func TestListingsEnd(t *testing.T) {
	goesOn := strings.Replace(listing, "<IsTruncated>false</IsTruncated>",
		"<IsTruncated>true</IsTruncated><NextContinuationToken>token</NextContinuationToken>", 1)
	before, rest, _ := strings.Cut(goesOn, "<Contents>")
	_, after, _ := strings.Cut(rest, "</Contents>")
	for name, page := range map[string]string{"the same page": goesOn, "an empty page": before + after} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			both(t, pages(page, &n), "", func(t *testing.T, s store.Store) {
				n.Store(0)
				var err error
				for page := (store.Page{Next: ""}); err == nil; {
					page, err = store.Finite(s).List(t.Context(), "index/", page.Next)
				}
				if !errors.Is(err, store.ErrListing) || strings.Contains(err.Error(), "\n") {
					t.Errorf("after %d pages: %v", n.Load(), err)
				}
			})
		})
	}
}

// TestHugeAnswers: no more than 16 MiB of an answer are read, for any request.
func TestHugeAnswers(t *testing.T) {
	for of := range requests {
		if of == "get" {
			continue // its limit is smaller
		}
		var written atomic.Int64
		both(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.Header().Set("Etag", `"e"`)
			chunk := []byte(strings.Repeat("<Contents></Contents>", 10_000))
			_, err := fmt.Fprint(w, "<ListBucketResult><Name>bucket</Name>")
			for ; err == nil && written.Load() < 100<<20; _, err = w.Write(chunk) {
				written.Add(int64(len(chunk)))
			}
		}, "", func(t *testing.T, s store.Store) {
			written.Store(0)
			if err := requests[of](t.Context(), s); of == "list" && !errors.Is(err, store.ErrConfig) {
				t.Errorf("%s: %v", of, err)
			}
			if written.Load() >= 100<<20 {
				t.Errorf("%s: all %d bytes were read", of, written.Load())
			}
		})
	}
}
