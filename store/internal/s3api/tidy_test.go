package s3api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/store"
)

// versioned answers as a versioned bucket does, and counts the requests to remove versions.
// remove and list answer requests that need a further permission.
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

// TestKeptVersions: the store finds out once that it can't remove versions, and returns no
// error for it.
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

// TestVersionsUnlisted: if versions can be removed and not listed, only the marker stays.
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

// TestPutsAtOnce: the order of two concurrent puts is unknown, so neither removes the other's
// version, which might be the visible one.
func TestPutsAtOnce(t *testing.T) {
	h, removals := versioned(say(204, ""), say(403, "AccessDenied"))
	var puts atomic.Int32
	first, second := make(chan struct{}), make(chan struct{})
	hold := func(w http.ResponseWriter, r *http.Request) {
		h(w, r) // it is applied,
		if r.Method == http.MethodPut && puts.Add(1) == 1 {
			close(first)
			<-second // and answered after the other
		}
	}
	server := httptest.NewServer(http.HandlerFunc(hold))
	t.Cleanup(server.Close)
	s := openStore(t, "s3://bucket/a?endpoint="+url.QueryEscape(server.URL))
	put := func() {
		if _, err := s.Put(t.Context(), "index/k", []byte("{}"), store.PutOptions{}); err != nil {
			t.Error(err)
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); put() }()
	<-first
	put()
	close(second)
	<-done
	if n := removals.Load(); n != 0 {
		t.Errorf("%d versions were removed", n)
	}
	put()
	if n := removals.Load(); n != 2 {
		t.Errorf("%d versions were removed by a put that came after both", n)
	}
}

// TestDeleteAndPutAtOnce: a deletion removes no version that might be newer than it.
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

// TestTidyingTakesNothingAway: a put succeeds even if old versions can't be removed in time.
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
