package s3api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// versioned answers as a versioned bucket. remove answers the removal of a version, and list a listing of
// versions, which both need a permission of their own.
type versioned struct {
	remove, list http.HandlerFunc
	puts         atomic.Int32
	mu           sync.Mutex
	versions     []string
}

var forbidden = say(403, "AccessDenied")

func (v *versioned) answer(w http.ResponseWriter, r *http.Request) {
	switch query := r.URL.Query(); {
	case r.Method == http.MethodPut:
		w.Header().Set("Etag", `"an-etag"`)
		w.Header().Set("X-Amz-Version-Id", fmt.Sprint("v", v.puts.Add(1)))
	case query.Has("versions"):
		v.list(w, r)
	case query.Has("versionId"):
		v.mu.Lock()
		v.versions = append(v.versions, query.Get("versionId"))
		v.mu.Unlock()
		v.remove(w, r)
	case r.Method == http.MethodDelete:
		w.Header().Set("X-Amz-Delete-Marker", "true")
		w.Header().Set("X-Amz-Version-Id", "marker")
		w.WriteHeader(http.StatusNoContent)
	}
}

// removed returns the versions whose removal was requested since it was last called.
func (v *versioned) removed() (versions []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	versions, v.versions = v.versions, nil
	return versions
}

// does sends requests that must succeed.
func does(t *testing.T, s store.Store, of ...string) {
	t.Helper()
	for _, of := range of {
		assert.Is(t, requests[of](t.Context(), s), nil, of)
	}
}

// TestKeptVersions: if the store can't remove versions, it tries once, and returns no error.
func TestKeptVersions(t *testing.T) {
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		removed int
	}{
		"not allowed":                  {forbidden, 1},
		"kept by Object Lock of MinIO": {say(400, "InvalidRequest"), 1},
		"the marker isn't listed":      {say(204, ""), 6},
	} {
		t.Run(name, func(t *testing.T) {
			v := versioned{remove: c.answer, list: forbidden}
			both(t, v.answer, func(t *testing.T, s store.Store) {
				for range 2 {
					does(t, s, "put", "put", "put", "delete")
				}
				assert.Equal(t, len(v.removed()), c.removed)
			})
		})
	}
}

// TestPutsAtOnce: of two concurrent writes neither removes the version of the other, because that might be
// the visible one. A put after both does.
func TestPutsAtOnce(t *testing.T) {
	for of, covered := range map[string]int{"put": 2, "delete": 1} {
		v := versioned{remove: say(204, ""), list: forbidden}
		var hold atomic.Bool
		held, second := make(chan struct{}), make(chan struct{})
		on(t, viaS3, func(w http.ResponseWriter, r *http.Request) {
			v.answer(w, r)
			if strings.EqualFold(r.Method, of) && hold.CompareAndSwap(true, false) {
				close(held)
				<-second // the answer comes after the second write
			}
		}, func(t *testing.T, s store.Store) {
			does(t, s, "put")
			hold.Store(true)
			first := make(chan struct{})
			go func() { defer close(first); does(t, s, of) }()
			<-held
			does(t, s, "put")
			close(second)
			<-first
			for _, removed := range v.removed() {
				assert.Equal(t, removed, "v1", "%s beside put: removed", of)
			}
			does(t, s, "put")
			assert.Equal(t, len(v.removed()), covered, "%s beside put: versions that a later put has removed", of)
		})
	}
}

// TestTidyingTakesNothingAway: a put succeeds even if the removal of old versions hangs.
func TestTidyingTakesNothingAway(t *testing.T) {
	v := versioned{remove: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, list: forbidden}
	both(t, v.answer, func(t *testing.T, s store.Store) {
		for _, timeout := range []time.Duration{time.Second, time.Second, 3 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			assert.Is(t, requests["put"](ctx, s), nil)
			assert.Is(t, ctx.Err(), nil, "the context")
			cancel()
		}
	})
}

// TestMarkerHidesOthers: the store removes its delete marker only if no version becomes visible, because
// another client might have deleted that version.
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
			v := versioned{remove: say(204, ""), list: versions(c.versions)}
			server.set(v.answer)
			does(t, s, "put", "delete")
			want := []string{"v1"} // our own version
			if c.goes {
				want = append(want, "marker")
			}
			assert.Equal(t, v.removed(), want, "%s: removed", name)
		}
	})
}

const versionListing = `<?xml version="1.0" encoding="UTF-8"?>
<ListVersionsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><Prefix>a/prefix/index/k</Prefix><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>%s</ListVersionsResult>`

func version(kind, key, id string) string {
	return fmt.Sprintf(`<%[1]s><Key>%[2]s</Key><VersionId>%[3]s</VersionId><IsLatest>false</IsLatest><LastModified>TIME</LastModified><ETag>&quot;e&quot;</ETag><Size>2</Size></%[1]s>`, kind, key, id)
}

// versions returns a handler that lists versions, each a second older than the one before.
func versions(versions string) http.HandlerFunc {
	versions = strings.Replace(versions, "<IsLatest>false", "<IsLatest>true", 1)
	for second := 59; strings.Contains(versions, "TIME"); second-- {
		versions = strings.Replace(versions, "TIME", fmt.Sprintf("2026-01-01T00:00:%02d.000Z", second), 1)
	}
	return as("application/xml", 200, fmt.Sprintf(versionListing, versions))
}
