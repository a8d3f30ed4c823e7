package b2

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// TestURLs: what a URL names, and what a message says that it isn't. The application key is never sent in the clear.
func TestURLs(t *testing.T) {
	for raw, want := range map[string]string{
		"b2://a-bucket": "", "b2://a-bucket/": "", "b2://a-bucket/a/b/": "",
		"b2://a-bucket?endpoint=https://h": "", "b2://a-bucket?endpoint=https://h/": "", "b2://a-bucket?endpoint=http://localhost:9": "",
		"b2://a-bucket?endpoint=http://127.0.0.1": "", "b2://a-bucket?endpoint=http://%5B::1%5D:9": "",
		"b2://a_bucket":                          "is not a bucket's name",
		"b2://":                                  "is not a bucket's name",
		"b2://a-bucket/a/../b":                   "no file's name can begin with",
		"b2://a-bucket/a//b":                     "no file's name can begin with",
		"b2://a-bucket/a%00b":                    "no file's name can begin with",
		"b2://a-bucket?other=1":                  "other",
		"b2://a-bucket?endpoint=h":               "the endpoint is written https://host",
		"b2://a-bucket?endpoint=https://u@h":     "the endpoint is written https://host",
		"b2://a-bucket?endpoint=https://h/path":  "the endpoint is written https://host",
		"b2://a-bucket?endpoint=https://h%3Fq":   "the endpoint is written https://host",
		"b2://a-bucket?endpoint=https://h%23f":   "the endpoint is written https://host",
		"b2://a-bucket?endpoint=https://h:0x":    "the endpoint is written https://host",
		"b2://a-bucket?endpoint=https://h:99999": "port",
		"b2://a-bucket?endpoint=http://h":        "the endpoint must be https://",
		"b2://a-bucket?endpoint=http://10.0.0.1": "the endpoint must be https://",
		"b2://a-bucket?endpoint=ftp://localhost": "the endpoint must be https://",
	} {
		u, err := url.Parse(raw)
		assert.OK(t, err)
		err = Check(u)
		if want == "" {
			assert.That(t, err == nil, "%s: %v", raw, err)
			continue
		}
		assert.That(t, errors.Is(err, store.ErrURL) && strings.Contains(err.Error(), want), "%s: %v", raw, err)
	}
	l, err := locate("a-bucket", "/a/b/", "https://h/")
	assert.That(t, err == nil && l.prefix == "a/b/" && l.endpoint == "https://h" && l.bucket == "a-bucket", "%+v, %v", l, err)
	l, err = locate("a-bucket", "/", "")
	assert.That(t, err == nil && l.prefix == "" && strings.HasPrefix(l.endpoint, "https://"), "%+v, %v", l, err)
}

// TestRefusals: what a refusal means by its status and its code.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		refusal refusal
		want    error // or nil if it might pass
		says    string
	}{
		{refusal{http.StatusServiceUnavailable, "", ""}, store.ErrUnreachable, "503 Service Unavailable"},
		{refusal{http.StatusBadGateway, "", ""}, store.ErrUnreachable, "502 Bad Gateway"},
		{refusal{http.StatusServiceUnavailable, "service_unavailable", "wait"}, nil, "503 service_unavailable: wait"},
		{refusal{http.StatusInternalServerError, "internal_error", ""}, nil, "500 internal_error"},
		{refusal{http.StatusInsufficientStorage, "", ""}, store.ErrFull, "507"},
		{refusal{http.StatusForbidden, "storage_cap_exceeded", ""}, store.ErrFull, "storage_cap_exceeded"},
		{refusal{http.StatusForbidden, "download_cap_exceeded", ""}, nil, "download_cap_exceeded"},
	} {
		err := c.refusal.err()
		assert.That(t, strings.Contains(err.Error(), c.says) && (c.want == nil || errors.Is(err, c.want)), "%+v: %v", c.refusal, err)
		for _, other := range []error{store.ErrUnreachable, store.ErrFull, store.ErrPermission} {
			assert.That(t, other == c.want || !errors.Is(err, other), "%+v: %v is %v", c.refusal, err, other)
		}
	}
}

// TestExplain: a refusal names the capability that the application key lacks, and a cap isn't a missing permission.
func TestExplain(t *testing.T) {
	s, why := &session{}, errors.New("why")
	s.APIInfo.Storage.Allowed.Capabilities = []string{"listFiles"}
	for _, c := range []struct {
		capability string
		refusal    refusal
		want       error
		says       string
	}{
		{"writeFiles", refusal{401, "unauthorized", ""}, store.ErrPermission, "lacks the capability writeFiles"},
		{"listFiles", refusal{401, "unauthorized", ""}, store.ErrPermission, "may not use its capability listFiles here"},
		{"listFiles", refusal{401, "bad_auth_token", ""}, why, "why"},
		{"listFiles", refusal{401, "expired_auth_token", ""}, why, "why"},
		{"listFiles", refusal{403, "access_denied", ""}, store.ErrPermission, "may not use its capability listFiles here"},
		{"listFiles", refusal{403, "transaction_cap_exceeded", ""}, why, "a cap of the account is exceeded: transaction"},
		{"listFiles", refusal{400, "bad_bucket_id", ""}, store.ErrNotFound, "the bucket is gone"},
		{"listFiles", refusal{500, "internal_error", ""}, why, "why"},
	} {
		err := s.explain(c.capability, c.refusal, why)
		assert.That(t, errors.Is(err, c.want) && strings.Contains(err.Error(), c.says), "%+v: %v", c.refusal, err)
		assert.That(t, c.want != why || !errors.Is(err, store.ErrPermission), "%+v: %v", c.refusal, err)
	}
}
