package s3api_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/store"
)

// versioned answers as a versioned bucket does, and counts the versions that are
// asked to be removed. remove and list answer what isn't always allowed.
func versioned(remove, list http.HandlerFunc) (h http.HandlerFunc, removals *atomic.Int32) {
	var n atomic.Int32
	removals = new(atomic.Int32)
	return func(w http.ResponseWriter, r *http.Request) {
		switch query := r.URL.Query(); {
		case r.Method == http.MethodPut:
			w.Header().Set("Etag", `"an-etag"`)
			w.Header().Set("X-Amz-Version-Id", fmt.Sprint("v", n.Add(1)))
		case query.Has("versions"):
			list(w, r)
		case query.Has("versionId"):
			removals.Add(1)
			remove(w, r)
		case r.Method == http.MethodDelete:
			w.Header().Set("X-Amz-Delete-Marker", "true")
			w.Header().Set("X-Amz-Version-Id", "marker")
			w.WriteHeader(http.StatusNoContent)
		}
	}, removals
}

// putsAndDeletes writes a key three times and deletes it, twice over.
func putsAndDeletes(t *testing.T, s store.Store) {
	t.Helper()
	for range 2 {
		for range 3 {
			if _, err := s.Put(t.Context(), "index/k", []byte("{}"), store.PutOptions{}); err != nil {
				t.Error(err)
			}
		}
		if err := s.Delete(t.Context(), "index/k"); err != nil {
			t.Error(err)
		}
	}
}

// TestKeptVersions: that versions may not be removed is found out once, and is no
// error.
func TestKeptVersions(t *testing.T) {
	for name, refusal := range map[string]http.HandlerFunc{
		"not allowed":                  say(403, "AccessDenied"),
		"kept by Object Lock of MinIO": say(400, "InvalidRequest"),
	} {
		t.Run(name, func(t *testing.T) {
			h, removals := versioned(refusal, say(403, "AccessDenied"))
			both(t, h, "", func(t *testing.T, s store.Store) {
				removals.Store(0)
				putsAndDeletes(t, s)
				if n := removals.Load(); n != 1 {
					t.Errorf("%d removals were tried, want 1", n)
				}
			})
		})
	}
}

// TestVersionsUnlisted: where versions may be removed and not listed, the marker
// stays, and nothing else.
func TestVersionsUnlisted(t *testing.T) {
	h, removals := versioned(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, say(403, "AccessDenied"))
	both(t, h, "", func(t *testing.T, s store.Store) {
		removals.Store(0)
		putsAndDeletes(t, s)
		if n := removals.Load(); n != 6 {
			t.Errorf("%d versions were removed, want 6", n)
		}
	})
}
