package s3api_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// TestDescribe: a setting is known only if the server shows it. That the bucket has no Object Lock is an answer, too.
func TestDescribe(t *testing.T) {
	document := func(root, inside string) http.HandlerFunc {
		return as("application/xml", 200, "<"+root+">"+inside+"</"+root+">")
	}
	versions := func(status string) http.HandlerFunc { return document("VersioningConfiguration", status) }
	locked := func(enabled string) http.HandlerFunc { return document("ObjectLockConfiguration", enabled) }
	var versioning, locking turns
	both(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("versioning") {
			versioning.answer(w, r)
		} else {
			locking.answer(w, r)
		}
	}, func(t *testing.T, s store.Store) {
		for name, c := range map[string]struct {
			versioning, locking http.HandlerFunc
			want                store.Description
		}{
			"both":          {versions("<Status>Enabled</Status>"), locked("<ObjectLockEnabled>Enabled</ObjectLockEnabled>"), store.Description{Versioning: store.Yes, ObjectLock: store.Yes}},
			"none":          {versions(""), say(404, "ObjectLockConfigurationNotFoundError"), store.Description{Versioning: store.No, ObjectLock: store.No}},
			"suspended":     {versions("<Status>Suspended</Status>"), locked(""), store.Description{Versioning: store.No, ObjectLock: store.No}},
			"not allowed":   {say(403, "AccessDenied"), say(403, "AccessDenied"), store.Description{}},
			"no such calls": {say(501, "NotImplemented"), say(404, "NoSuchKey"), store.Description{}},
		} {
			versioning.set(c.versioning)
			locking.set(c.locking)
			got, err := s.(store.Describer).Describe(t.Context())
			got.Server = ""
			assert.That(t, err == nil && got == c.want, "%s: %+v, %v", name, got, err)
		}
	})
}

// TestCursor: the next page of MinIO begins after the last key of this one, because its library sends no token. That of
// S3 has the server's token.
func TestCursor(t *testing.T) {
	var asked url.Values
	both(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query()
		as("application/xml", 200, goesOn)(w, r)
	}, func(t *testing.T, s store.Store) {
		page, err := s.List(t.Context(), "index/", "")
		assert.That(t, err == nil && page.Next != "", "%+v, %v", page, err)
		_, _ = s.List(t.Context(), "index/", page.Next)
		want := map[string]string{"s3": "token ", "minio": " a/prefix/index/k"}[s.Properties().Name]
		assert.Equal(t, asked.Get("continuation-token")+" "+asked.Get("start-after"), want)
	})
}
