package s3api_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
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
			both(t, h, func(t *testing.T, s store.Store) {
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
	both(t, h, func(t *testing.T, s store.Store) {
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
	on(t, viaS3, hold, func(t *testing.T, s store.Store) {
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
	})
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
	on(t, viaS3, func(w http.ResponseWriter, r *http.Request) {
		h(w, r)
		if r.Method == http.MethodDelete && !r.URL.Query().Has("versionId") {
			close(deletion)
			<-put
		}
	}, func(t *testing.T, s store.Store) {
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
	})
}

// TestTidyingTakesNothingAway: a put succeeds even if old versions can't be removed in time.
func TestTidyingTakesNothingAway(t *testing.T) {
	h, _ := versioned(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, say(403, "AccessDenied"))
	both(t, h, func(t *testing.T, s store.Store) {
		for _, timeout := range []time.Duration{time.Second, time.Second, 3 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			_, err := s.Put(ctx, "index/k", []byte("{}"), store.PutOptions{})
			if err != nil || ctx.Err() != nil {
				t.Errorf("%v; the context: %v", err, ctx.Err())
			}
			cancel()
		}
	})
}

// TestMarkerHidesOthers: the store removes its delete marker only if that uncovers nothing.
// The version below it can be another client's deleted one.
func TestMarkerHidesOthers(t *testing.T) {
	const key = "a/prefix/index/k"
	marker := func(id string) string { return version("DeleteMarker", key, id) }
	other := func(id string) string { return version("Version", key, id) }
	var server turns
	both(t, server.answer, func(t *testing.T, s store.Store) {
		for name, c := range map[string]struct {
			versions string // the newest first
			goes     bool
		}{
			"it hides nothing":                        {marker("marker"), true},
			"it hides a marker":                       {marker("marker") + marker("older") + other("theirs"), true},
			"it hides another's version":              {marker("marker") + other("theirs"), false},
			"it hides another's, and a marker":        {marker("marker") + other("theirs") + marker("older"), false},
			"another's was put since":                 {other("newer") + marker("marker"), true},
			"another's was put since, and one before": {other("newer") + marker("marker") + other("theirs"), false},
			"it isn't listed":                         {other("theirs"), false},
			"nothing is listed":                       {"", false},
			"the next key has a version":              {marker("marker") + version("Version", key+"2", "theirs"), true},
		} {
			var removed removals
			h, _ := versioned(removed.remove, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/xml")
				fmt.Fprintf(w, versionListing, latestFirst(c.versions))
			})
			server.set(h)
			if _, err := s.Put(t.Context(), "index/k", []byte("{}"), store.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := s.Delete(t.Context(), "index/k"); err != nil {
				t.Fatal(err)
			}
			want := []string{"v1"} // our own version
			if c.goes {
				want = append(want, "marker")
			}
			if got := removed.take(); !slices.Equal(got, want) {
				t.Errorf("%s: removed %q, want %q", name, got, want)
			}
		}
	})
}

// removals are the versions that a server has removed.
type removals struct {
	mu       sync.Mutex
	versions []string
}

func (r *removals) remove(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions = append(r.versions, q.URL.Query().Get("versionId"))
	w.WriteHeader(http.StatusNoContent)
}

// take returns the versions since its last call.
func (r *removals) take() (versions []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	versions, r.versions = r.versions, nil
	return versions
}

const versionListing = `<?xml version="1.0" encoding="UTF-8"?>
<ListVersionsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><Prefix>a/prefix/index/k</Prefix><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>%s</ListVersionsResult>`

func version(kind, key, id string) string {
	return fmt.Sprintf(`<%[1]s><Key>%[2]s</Key><VersionId>%[3]s</VersionId><IsLatest>false</IsLatest><LastModified>TIME</LastModified><ETag>&quot;e&quot;</ETag><Size>2</Size></%[1]s>`, kind, key, id)
}

// latestFirst dates versions, each a second older than the one before.
func latestFirst(versions string) string {
	versions = strings.Replace(versions, "<IsLatest>false", "<IsLatest>true", 1)
	for second := 59; strings.Contains(versions, "TIME"); second-- {
		versions = strings.Replace(versions, "TIME", fmt.Sprintf("2026-01-01T00:00:%02d.000Z", second), 1)
	}
	return versions
}
