package s3api_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

const listing = `<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><Prefix>a/prefix/index/</Prefix><KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated><Contents><Key>a/prefix/index/k</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>2</Size><StorageClass>STANDARD</StorageClass></Contents></ListBucketResult>`

// TestListings: a listing that isn't complete, in order, and for the requested prefix is an error. If it
// passed as an empty one, the lock would look free. An object without a size would look like a released
// lock. Another order would hide exclusive locks, because a shared acquirer stops at the first shared
// lock. The store's time is the Date of the answer.
func TestListings(t *testing.T) {
	const date = "Thu, 01 Jan 2026 00:00:07 GMT"
	list := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.Header().Set("Date", date)
			fmt.Fprint(w, body)
		}
	}
	without := func(s, instead string) string {
		if !strings.Contains(listing, s) {
			t.Fatalf("nothing is changed: %s", s)
		}
		return strings.Replace(listing, s, instead, 1)
	}
	entry := listing[strings.Index(listing, "<Contents>") : strings.Index(listing, "</Contents>")+len("</Contents>")]
	bad := map[string]string{
		"empty":               "",
		"blank":               "\n",
		"another root":        `<?xml version="1.0"?><Result></Result>`,
		"an error":            `<?xml version="1.0"?><Error><Code>SlowDown</Code></Error>`,
		"html":                "<html></html>",
		"no name":             without("<Name>bucket</Name>", ""),
		"other prefix":        without("a/prefix/index/<", "a/prefix/<"),
		"other key":           without("<Key>a/prefix/index/k", "<Key>b/k"),
		"key of the bucket":   without("<Key>a/prefix/index/k", "<Key>a/prefix/other/k"),
		"no end":              without("<IsTruncated>false", "<IsTruncated>true"),
		"no size":             without("<Size>2</Size>", ""),
		"an empty size":       without("<Size>2</Size>", "<Size/>"),
		"a negative size":     without("<Size>2</Size>", "<Size>-1</Size>"),
		"no time":             without("<LastModified>2026-01-01T00:00:00.000Z</LastModified>", ""),
		"no word of its end":  without("<IsTruncated>false</IsTruncated>", ""),
		"an empty word of it": without("<IsTruncated>false</IsTruncated>", "<IsTruncated/>"),
		"text after its end":  listing + "x",
		"a listing after it":  listing + "\n" + listing,
		"an error after it":   listing + "<Error><Code>InternalError</Code></Error>",
		"no order":            without(entry, entry+strings.Replace(entry, "index/k<", "index/j<", 1)),
	}
	for i := 0; i < len(listing)-1; i += 7 {
		bad[fmt.Sprintf("cut at %d", i)] = listing[:i]
	}
	var server turns
	both(t, server.answer, func(t *testing.T, s store.Store) {
		server.set(list(listing))
		p, err := s.List(t.Context(), "index/", "")
		assert.OK(t, err)
		assert.That(t, len(p.Objects) == 1 && p.Objects[0].Key == "index/k" && p.Objects[0].ETag == "e", "%+v", p)
		assert.Equal(t, p.Now.Format(http.TimeFormat), date)
		for _, body := range []string{listing + "\n", listing + "\r\n  "} {
			server.set(list(body))
			assert.OK(t, assert.Err(s.List(t.Context(), "index/", "")))
		}
		server.set(list(without("index/k<", "index/k+%41<")))
		p, err = s.List(t.Context(), "index/", "")
		assert.That(t, err == nil && len(p.Objects) == 1 && p.Objects[0].Key == "index/k+%41", "a key that isn't encoded: %+v, %v", p, err)
		server.set(list(strings.Replace(without("index/k<", "index/k%2B%2541<"), "<KeyCount>", "<EncodingType>url</EncodingType><KeyCount>", 1)))
		p, err = s.List(t.Context(), "index/", "")
		assert.That(t, err == nil && len(p.Objects) == 1 && p.Objects[0].Key == "index/k+%41", "an encoded key: %+v, %v", p, err)
		for name, body := range bad {
			server.set(list(body))
			p, err := s.List(t.Context(), "index/", "")
			assert.That(t, err != nil, "%s: gives %+v", name, p)
			if name == "no order" {
				assert.Says(t, err, store.ErrListing, "", name)
				assert.That(t, !store.Permanent(err), "%s: it might pass: %v", name, err)
			}
		}
		server.set(list(strings.Replace(goesOn, entry, "", 1)))
		assert.Is(t, assert.Err(store.Keys(t.Context(), s, "index/")), store.ErrListing, "empty pages without an end")
	})
}

// TestListedTwice: if a server lists a key twice while it is overwritten, the listing shows its newest form.
func TestListedTwice(t *testing.T) {
	entry := func(key, second, etag string, size int) string {
		return fmt.Sprintf("<Contents><Key>a/prefix/index/%s</Key><LastModified>2026-01-01T00:00:0%s.000Z</LastModified><ETag>&quot;%s&quot;</ETag><Size>%d</Size></Contents>", key, second, etag, size)
	}
	before, _, _ := strings.Cut(listing, "<Contents>")
	var server turns
	both(t, server.answer, func(t *testing.T, s store.Store) {
		for name, c := range map[string]struct{ entries, etag string }{
			"the same":                   {entry("k", "1", "new", 2) + entry("k", "1", "new", 2), "new"},
			"older first":                {entry("k", "1", "old", 2) + entry("k", "2", "new", 2), "new"},
			"newer first":                {entry("k", "2", "new", 2) + entry("k", "1", "old", 2), "new"},
			"three times":                {entry("k", "2", "old", 2) + entry("k", "3", "new", 2) + entry("k", "1", "old", 2), "new"},
			"empty, and then not":        {entry("k", "1", "old", 0) + entry("k", "1", "new", 2), "new"},
			"in doubt it isn't released": {entry("k", "1", "new", 2) + entry("k", "2", "empty", 0), "new"},
		} {
			body := before + entry("j", "1", "e", 2) + c.entries + entry("l", "1", "e", 2) + "</ListBucketResult>"
			server.set(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
			p, err := s.List(t.Context(), "index/", "")
			assert.OK(t, err)
			var listed []string
			for _, o := range p.Objects {
				listed = append(listed, o.Key+" "+o.ETag)
			}
			assert.Equal(t, listed, []string{"index/j e", "index/k " + c.etag, "index/l e"}, name)
		}
	})
}

// goesOn is a listing with a next page.
var goesOn = strings.Replace(listing, "<IsTruncated>false</IsTruncated>",
	"<IsTruncated>true</IsTruncated><NextContinuationToken>token</NextContinuationToken>", 1)

// TestShortPage: a page that isn't full is also one request.
func TestShortPage(t *testing.T) {
	second := strings.ReplaceAll(listing, "index/k<", "index/l<")
	var n atomic.Int32
	both(t, func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		q := r.URL.Query()
		if q.Get("continuation-token") == "" && q.Get("start-after") == "" {
			fmt.Fprint(w, goesOn)
		} else {
			fmt.Fprint(w, second)
		}
	}, func(t *testing.T, s store.Store) {
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

// TestHugeAnswers: no more than 16 MiB of an answer are read, and little more of an object than the caller's limit.
func TestHugeAnswers(t *testing.T) {
	for of, most := range map[string]int64{"list": 100 << 20, "put": 100 << 20, "delete": 100 << 20, "delete all": 100 << 20, "get": 1 << 20} {
		var written atomic.Int64
		both(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.Header().Set("Etag", `"e"`)
			w.Header().Set("Last-Modified", "Thu, 01 Jan 2026 00:00:07 GMT")
			chunk := []byte(strings.Repeat("<Contents>"+strings.Repeat("x", 2000)+"</Contents>", 100))
			_, err := fmt.Fprint(w, "<ListBucketResult><Name>bucket</Name>")
			for ; err == nil && written.Load() < 100<<20; _, err = w.Write(chunk) {
				written.Add(int64(len(chunk)))
			}
		}, func(t *testing.T, s store.Store) {
			written.Store(0)
			err := requests[of](t.Context(), s)
			assert.That(t, of != "list" || errors.Is(err, store.ErrConfig), "%s: %v", of, err)
			assert.That(t, of != "get" || errors.Is(err, store.ErrTooLarge), "%s: %v", of, err)
			assert.That(t, written.Load() < most, "%s: %d bytes were read", of, written.Load())
		})
	}
}

// TestServedByRclone: a server whose answers look like those of rclone serve s3 is refused at the first listing, unless
// the user vouches for its listings. Another server that permits headers to web pages isn't.
func TestServedByRclone(t *testing.T) {
	settled(t, keys...)
	var headers atomic.Value
	server := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "AmazonS3")
		w.Header().Set("Access-Control-Allow-Headers", headers.Load().(string))
		as("application/xml", 200, strings.ReplaceAll(listing, "a/prefix/", ""))(w, nil)
	})
	for _, repo := range []string{"s3://bucket?endpoint=" + server, "minio://" + strings.TrimPrefix(server, "http://") + "/bucket?tls=false"} {
		for _, c := range []struct {
			query, headers string
			refused        bool
		}{
			{"", "X-CSRF-Token, x-amz-acl, x-amz-content-sha256, x-amz-meta-filename, x-amz-meta-from, x-amz-meta-private, x-amz-meta-to, x-amz-security-token", true},
			{"&listings=fresh", "x-amz-meta-from, x-amz-meta-private, x-amz-meta-to", false},
			{"", "Content-Type, x-amz-acl", false},
		} {
			headers.Store(c.headers)
			s, err := opened(t.Context(), t, repo+c.query)
			assert.OK(t, err)
			_, err = s.List(t.Context(), "index/", "")
			if !c.refused {
				assert.OK(t, err)
				continue
			}
			assert.Says(t, err, store.ErrConfig, "looks like rclone serve s3")
			assert.That(t, strings.Contains(fault.Advice(err), "listings=fresh"), "advice %q", fault.Advice(err))
		}
		_, err := opened(t.Context(), t, repo+"&listings=old")
		assert.Says(t, err, store.ErrURL, "listings= is fresh")
	}
}
