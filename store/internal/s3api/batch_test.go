package s3api_test

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// batch returns the keys of a DeleteObjects request. The request must have Content-MD5, and must ask for an
// answer that names the keys.
func batch(t *testing.T, r *http.Request) (keys []string) {
	body, err := io.ReadAll(r.Body)
	var d struct {
		Object []struct{ Key string }
		Quiet  bool
	}
	if err == nil {
		err = xml.Unmarshal(body, &d)
	}
	sum := md5.Sum(body)
	if err != nil || r.Method != http.MethodPost || !r.URL.Query().Has("delete") || d.Quiet ||
		r.Header.Get("Content-Md5") != base64.StdEncoding.EncodeToString(sum[:]) {
		t.Errorf("%s %s, %v: %v: %s", r.Method, r.URL, r.Header, err, body)
	}
	for _, o := range d.Object {
		keys = append(keys, o.Key)
	}
	return keys
}

func named(key string) string { return "<Deleted><Key>" + key + "</Key></Deleted>" }
func denied(key string) string {
	return "<Error><Key>" + key + "</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
}

// answered returns a handler that answers DeleteObjects with results for the keys, in this form.
func answered(t *testing.T, form string, results func(keys []string) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		keys := batch(t, r)
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprintf(w, form, results(keys))
	}
}

const deleteResult = `<?xml version="1.0"?><DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">%s</DeleteResult>`

// TestDeleteAll: an object is reported as deleted if and only if the answer names its key as deleted. Some
// servers leave out keys, or refuse some.
func TestDeleteAll(t *testing.T) {
	keys := []string{"index/k", "index/l", "index/m", "index/n"}
	all := func(keys []string) (s string) {
		for _, key := range keys {
			s += named(key)
		}
		return s
	}
	var server turns
	both(t, server.answer, func(t *testing.T, s store.Store) {
		for name, c := range map[string]struct {
			form    string
			results func(keys []string) string
			want    []bool
		}{
			"all":              {deleteResult, all, []bool{true, true, true, true}},
			"in another order": {deleteResult, func(k []string) string { return all([]string{k[3], k[1], k[0], k[2]}) }, []bool{true, true, true, true}},
			"one is refused":   {deleteResult, func(k []string) string { return all(k[:2]) + denied(k[2]) + all(k[3:]) }, []bool{true, true, false, true}},
			"all are refused":  {deleteResult, func(k []string) string { return denied(k[0]) + denied(k[1]) + denied(k[2]) + denied(k[3]) }, make([]bool, 4)},
			"one is ignored":   {deleteResult, func(k []string) string { return all(k[1:]) }, []bool{false, true, true, true}},
			"none is named":    {deleteResult, func([]string) string { return "" }, make([]bool, 4)},
			"others are named": {deleteResult, func(k []string) string { return all([]string{"index/k", "x", k[0] + "2"}) }, make([]bool, 4)},
			"of another form":  {`<?xml version="1.0"?><Error>%s</Error>`, func([]string) string { return "<Code>InternalError</Code>" }, make([]bool, 4)},
			"cut off":          {`<?xml version="1.0"?><DeleteResult>%s`, all, make([]bool, 4)},
			"empty":            {"%s", func([]string) string { return "" }, make([]bool, 4)},
			"no XML":           {"%s", func([]string) string { return "OK" }, make([]bool, 4)},
		} {
			server.set(answered(t, c.form, c.results))
			got, err := store.DeleteAll(t.Context(), s, keys)
			assert.Equal(t, got, c.want, name)
			if err != nil && !slices.Contains(c.want, true) {
				assert.Is(t, err, store.ErrBatchUnsupported, name)
			} else {
				assert.Is(t, err, nil, name)
			}
		}
	})
}

// TestDeleteAllRefused: a server that lacks the request can refuse it in many ways, and is asked once.
// After a failure the request can be repeated. In both cases no object is reported as deleted.
func TestDeleteAllRefused(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		lacks  bool
	}{
		"NotImplemented": {say(501, "NotImplemented"), true}, "501": {say(501, ""), true}, "405": {say(405, "MethodNotAllowed"), true},
		"404": {say(404, "NoSuchKey"), true}, "no checksum": {say(400, "MissingContentMD5"), true}, "400": {say(400, "InvalidRequest"), true},
		"411": {say(411, "MissingContentLength"), true}, "denied": {say(403, "AccessDenied"), true},
		"a page": {page(404), true}, "a page of 405": {page(405), true},
		"500": {say(500, "InternalError"), false}, "503": {say(503, "SlowDown"), false}, "429": {say(429, "TooManyRequests"), false},
		"408": {say(408, "RequestTimeout"), false}, "a page of 502": {page(502), false},
		"cut": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int32
			both(t, func(w http.ResponseWriter, r *http.Request) { n.Add(1); c.answer(w, r) }, func(t *testing.T, s store.Store) {
				n.Store(0)
				for range 2 {
					got, err := store.DeleteAll(t.Context(), s, []string{"index/k", "index/l"})
					assert.That(t, err != nil && !strings.Contains(fmt.Sprint(err), "\n"), "%v", err)
					assert.Equal(t, errors.Is(err, store.ErrBatchUnsupported), c.lacks, "%v is unsupported", err)
					assert.Equal(t, store.Permanent(err), c.lacks, "%v is permanent", err)
					assert.That(t, !slices.Contains(got, true), "%v", got)
				}
				want := map[bool]int32{true: 1, false: 2}[c.lacks]
				assert.That(t, n.Load() == want, "%d requests, want %d", n.Load(), want)
			})
		})
	}
}

// TestDeleteAllUnnamable: a key isn't sent, and not reported as deleted, if XML can't carry it unchanged,
// if it is invalid, or if the batch is full.
func TestDeleteAllUnnamable(t *testing.T) {
	asked := make(chan []string, 100)
	both(t, answered(t, deleteResult, func(keys []string) (s string) {
		asked <- keys
		for _, key := range keys {
			s += named(strings.ReplaceAll(key, "&", "&amp;"))
		}
		return s
	}), func(t *testing.T, s store.Store) {
		keys := []string{"a\x01b", "a\rb", "a\nb", "a\uFFFFb", "/a", "../a", "", "a&b", "ümläut"}
		for i := range store.MaxBatch {
			keys = append(keys, fmt.Sprint("k", i))
		}
		got, err := store.DeleteAll(t.Context(), s, keys)
		sent := <-asked
		if err != nil || len(got) != len(keys) || len(sent) > store.MaxBatch || slices.Contains(got[:7], true) || !got[7] || !got[8] ||
			!got[store.MaxBatch-1] || got[store.MaxBatch] {
			t.Errorf("%v; %d keys were sent; %v", err, len(sent), got[:10])
		}
		assert.Is(t, assert.Err(store.DeleteAll(t.Context(), s, keys[:7])), store.ErrBatchUnsent, "nothing can be sent")
	})
}

// TestDeleteAllOfVersions: in a versioned bucket DeleteAll removes this store's versions, and the delete
// marker if it hides nothing else, as Delete does.
func TestDeleteAllOfVersions(t *testing.T) {
	v := versioned{remove: say(204, ""), list: versions(version("DeleteMarker", "a/prefix/index/k", "marker"))}
	both(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			v.answer(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/xml")
		marked := "<DeleteMarker>true</DeleteMarker><DeleteMarkerVersionId>marker</DeleteMarkerVersionId></Deleted>"
		fmt.Fprintf(w, deleteResult, strings.ReplaceAll(named("a/prefix/index/k")+named("a/prefix/index/l"), "</Deleted>", marked))
	}, func(t *testing.T, s store.Store) {
		v.puts.Store(0)
		does(t, s, "put")
		got, err := store.DeleteAll(t.Context(), s, []string{"index/k", "index/l"})
		assert.Is(t, err, nil)
		assert.Equal(t, got, []bool{true, true})
		assert.Equal(t, v.removed(), []string{"v1", "marker"}, "removed")
	})
}
