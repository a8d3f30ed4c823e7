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

// Rules for the answers to listings.

// TestListedWhole: an incomplete answer to a listing is an error. An object without a size
// would look empty, which is a released lock. A shared acquirer reads no further than the
// first shared lock, so another order would hide the exclusive ones. A listing that doesn't
// say whether it continues might.
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

// TestListedTwice: a server can list a key twice while it is overwritten. The listing shows
// its newest form, and doesn't fail.
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

// TestDisorderMayPass: the error for an unordered listing isn't permanent.
func TestDisorderMayPass(t *testing.T) {
	entry := listing[strings.Index(listing, "<Contents>") : strings.Index(listing, "</Contents>")+len("</Contents>")]
	body := strings.Replace(listing, entry, entry+strings.Replace(entry, "index/k<", "index/j<", 1), 1)
	both(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }, "", func(t *testing.T, s store.Store) {
		if _, err := s.List(t.Context(), "index/", ""); !errors.Is(err, store.ErrListing) || store.Permanent(err) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
	})
}

// TestShortPage: a page that isn't full costs one request too.
func TestShortPage(t *testing.T) {
	first := strings.Replace(listing, "<IsTruncated>false</IsTruncated>", "<IsTruncated>true</IsTruncated><NextContinuationToken>token</NextContinuationToken>", 1)
	second := strings.ReplaceAll(listing, "index/k<", "index/l<")
	var n atomic.Int32
	both(t, func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		q := r.URL.Query()
		if q.Get("continuation-token") == "" && q.Get("start-after") == "" {
			fmt.Fprint(w, first)
		} else {
			fmt.Fprint(w, second)
		}
	}, "", func(t *testing.T, s store.Store) {
		n.Store(0)
		cursor := ""
		for i, want := range []string{"index/k", "index/l"} {
			p, err := s.List(t.Context(), "index/", cursor)
			if err != nil || len(p.Objects) != 1 || p.Objects[0].Key != want || (p.Next == "") != (i == 1) || n.Load() != int32(i+1) {
				t.Fatalf("page %d: %+v, %v after %d requests", i, p, err, n.Load())
			}
			cursor = p.Next
		}
	})
}
