package minio

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestProvidersRequestsAreNotOwn: requests to the server are the store's own, and those of providers of
// credentials aren't.
func TestProvidersRequestsAreNotOwn(t *testing.T) {
	for _, c := range []struct {
		endpoint, method, url string
		want                  bool
	}{
		{"https://h:9000", "PUT", "https://h:9000/bucket/k", true},
		{"https://h:9000", "GET", "https://bucket.h:9000/k", true},
		{"https://h:443", "GET", "https://h/bucket/?location=", true},
		{"http://h", "DELETE", "http://h:80/bucket/k", true},
		{"https://s3.amazonaws.com", "PUT", "https://bucket.s3.dualstack.eu-west-1.amazonaws.com/k", true},
		{"https://s3.amazonaws.com", "PUT", "https://bucket.s3-accelerate.amazonaws.com/k", true},
		{"https://h:9000", "POST", "https://h:9000/bucket/?delete=", true},
		{"https://h:9000", "POST", "https://h:9000/", false},
		{"http://127.0.0.1:9000", "GET", "http://127.0.0.1:9001/latest", false},
		{"http://h:9000", "PUT", "http://169.254.169.254/latest/api/token", false},
		{"https://s3.amazonaws.com", "GET", "http://169.254.170.2/v2/credentials", false},
		{"https://s3.amazonaws.com", "GET", "https://portal.sso.eu-west-1.amazonaws.com/federation/credentials", false},
	} {
		endpoint, _ := url.Parse(c.endpoint)
		r, err := http.NewRequest(c.method, c.url, nil)
		assert.OK(t, err)
		assert.Equal(t, own(endpoint)(r), c.want, "%+v", c)
	}
}
