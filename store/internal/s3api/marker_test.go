package s3api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/repolock/repolock/store"
)

// TestMarkerHidesOthers: the store removes its delete marker only if that uncovers nothing.
// The version below it can be another client's deleted one.
func TestMarkerHidesOthers(t *testing.T) {
	const key = "a/prefix/index/k"
	marker := func(id string) string { return version("DeleteMarker", key, id) }
	other := func(id string) string { return version("Version", key, id) }
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
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var removed []string
			list := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/xml")
				fmt.Fprintf(w, versionListing, latestFirst(c.versions))
			}
			remove := func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				removed = append(removed, r.URL.Query().Get("versionId"))
				w.WriteHeader(http.StatusNoContent)
			}
			both(t, func(w http.ResponseWriter, r *http.Request) {
				h, _ := versioned(remove, list)
				h(w, r)
			}, "", func(t *testing.T, s store.Store) {
				mu.Lock()
				removed = nil
				mu.Unlock()
				if _, err := s.Put(t.Context(), "index/k", []byte("{}"), store.PutOptions{}); err != nil {
					t.Fatal(err)
				}
				if err := s.Delete(t.Context(), "index/k"); err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				defer mu.Unlock()
				want := []string{"v1"} // our own version
				if c.goes {
					want = append(want, "marker")
				}
				if !slices.Equal(removed, want) {
					t.Errorf("removed %q, want %q", removed, want)
				}
			})
		})
	}
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
