package minio

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// own returns a function that reports whether a request under a store's context is the
// store's. The others are those of a provider of credentials, to which the library passes its
// HTTP client and the context. MinIO's STS has the server's address, and is sent a POST. A store
// sends one only to delete many objects. The library replaces Amazon's endpoint by the region's.
func own(endpoint *url.URL) func(*http.Request) bool {
	server, amazon := address(endpoint), s3utils.IsAmazonEndpoint(*endpoint)
	return func(r *http.Request) bool {
		host := address(r.URL)
		return (r.Method != http.MethodPost || r.URL.Query().Has("delete")) &&
			(host == server || strings.HasSuffix(host, "."+server) || amazon && strings.Contains(host, "s3"))
	}
}

// address returns a URL's host, without the port if that is the scheme's: the library strips it.
func address(u *url.URL) string {
	return strings.TrimSuffix(u.Host, map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
}
