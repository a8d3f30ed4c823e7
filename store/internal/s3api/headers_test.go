package s3api_test

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// TestPutHeaders: each put has the headers that the URL asks for, with and without a condition, and no other request has
// one.
func TestPutHeaders(t *testing.T) {
	names := []string{"X-Amz-Server-Side-Encryption", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", "X-Amz-Acl"}
	var mu sync.Mutex
	puts, got := 0, map[string]string{}
	url := served(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		have := map[string]string{}
		for _, name := range names {
			if v := r.Header.Get(name); v != "" {
				have[name] = v
				assert.That(t, strings.Contains(r.Header.Get("Authorization"), strings.ToLower(name)), "%s isn't signed", name)
			}
		}
		if r.Method != http.MethodPut {
			assert.That(t, len(have) == 0, "%s has %v", r.Method, have)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		puts, got = puts+1, have
		w.Header().Set("Etag", `"e"`)
	})
	const arn = "arn:aws:kms:eu-west-1:123456789012:key/0-1"
	for query, want := range map[string]map[string]string{
		"":           {},
		"sse=AES256": {names[0]: "AES256"},
		"sse=aws:kms&sse-key=" + arn + "&acl=bucket-owner-full-control": {names[0]: "aws:kms", names[1]: arn, names[2]: "bucket-owner-full-control"},
		"sse=aws%3Akms%3Adsse&sse_key=alias/k":                          {names[0]: "aws:kms:dsse", names[1]: "alias/k"},
		"acl=private":                                                   {names[2]: "private"},
	} {
		for _, raw := range []string{"s3://bucket/p?endpoint=" + url + "&" + query, "minio://" + strings.TrimPrefix(url, "http://") + "/bucket/p?tls=false&" + query} {
			settled(t, keys...)
			s, err := opened(t.Context(), t, strings.TrimSuffix(raw, "&"))
			assert.OK(t, err)
			for _, opts := range []store.PutOptions{{}, {IfAbsent: true}, {IfMatch: "e"}} {
				puts = 0
				assert.OK(t, assert.Err(s.Put(t.Context(), "index/k", []byte("{}"), opts)))
				assert.That(t, puts == 1 && maps.Equal(got, want), "%s: %+v: %v", raw, opts, got)
			}
			assert.That(t, assert.Err(s.List(t.Context(), "index/", "")) != nil && s.Delete(t.Context(), "index/k") != nil, "%s isn't refused", raw)
		}
	}
}

// TestPutHeadersOfAURL: S3 has no other values, and a message says which there are.
func TestPutHeadersOfAURL(t *testing.T) {
	for query, want := range map[string]string{
		"sse=aes256":                 "sse= is AES256, aws:kms or aws:kms:dsse",
		"sse=AES256&sse-key=k":       "add sse=aws:kms",
		"sse-key=k":                  "add sse=aws:kms",
		"sse=aws:kms&sse-key=a%0Ab":  "the id, the ARN or the alias",
		"acl=public-read-write":      "everybody could write the locks",
		"acl=x":                      "acl= is private, ",
		"sse=AES256&sse=AES256":      "sse= is there twice",
		"sse=aws:kms&sse-key=k&acl=": "acl= has no value",
	} {
		for _, raw := range []string{"s3://bucket?" + query, "minio://h/bucket?" + query} {
			settled(t, keys...)
			_, err := opened(t.Context(), t, raw)
			assert.That(t, errors.Is(err, store.ErrURL) && strings.Contains(err.Error(), want), "%s: %v", raw, err)
		}
	}
}
