// Package minio keeps a repository in a bucket of a MinIO server, on MinIO's own client library.
//
// # URL
//
//	minio://HOST:PORT/BUCKET/PREFIX?tls=false&region=&alias=&conditions=&listings=&sse=&sse-key=&acl=
//
// [Open] takes such a URL, and [New] a client of the program's own. The prefix can be missing. The connection has TLS
// unless tls=false. alias is an alias of mc, whose credentials Open takes from MC_HOST_ALIAS, or else from mc's file.
// It takes nothing else from the alias. conditions is as in package s3, auto by default, and so are sse, sse-key and
// acl.
//
// Otherwise Open finds credentials in the environment (MINIO_ROOT_USER and MINIO_ROOT_PASSWORD, or MINIO_ACCESS_KEY and
// MINIO_SECRET_KEY, or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN), in mc's and Amazon's files, or
// by the role of the machine. If a service of credentials fails, or another process writes new credentials into a file,
// that is as in package s3.
//
// An authority must have signed the server's certificate. It is one that this machine trusts, or that AWS_CA_BUNDLE
// names instead, or one of mc's, in ~/.mc/certs/CAs. MC_CONFIG_DIR replaces ~/.mc.
//
// # Cost and guarantees
//
// They are as in package s3, versions included. The library always has a region, so that it sends no request to find
// one.
//
// # Caveats
//
// The library doesn't learn the server's time. If this machine's clock is more than 15 minutes off, the server refuses
// the requests, and the error is [store.ErrConfig].
//
// MinIO ignores If-Match on a deletion, so DeleteIfMatch doesn't send it.
//
// MinIO before September 2025 accepts a put with If-Match on a key without an object
// (github.com/minio/minio/issues/21526): conditions=kept is wrong there.
package minio

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/repolock/repolock/internal/port"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
	"github.com/repolock/repolock/store/internal/s3api"
)

// Options are the options of a repository. The zero value is a repository at the root of its bucket.
type Options struct {
	// Prefix is the prefix of all keys. Slashes around it are ignored.
	Prefix string
	// Conditions is how far the lock relies on conditional puts: "auto", "kept" or "none", as in a URL. "" is "auto".
	Conditions string
	// FreshListings is as in package s3.
	FreshListings bool
	// Encryption, EncryptionKey and ACL are headers of each put, as in package s3.
	Encryption, EncryptionKey, ACL string
}

// headers returns the options as headers of a put.
func (o Options) headers() s3api.PutHeaders {
	return s3api.PutHeaders{SSE: o.Encryption, SSEKey: o.EncryptionKey, ACL: o.ACL}
}

// defaultRegion is MinIO's own default. Without a region the library would first ask for it.
const defaultRegion = "us-east-1"

// Configure sets up a client's options for [New]: the client sends each request once, and its transport records the
// answers. Configure replaces Transport by one that is built on it. If Transport is nil, the new one has short
// timeouts. Configure sets MaxRetries, and Region if that is empty.
//
// If Transport is an [*http.Transport], the new one is a copy of it, with its own connections, and without protocols of
// RegisterProtocol. With any other Transport, a missing answer is never [store.ErrUnreachable], because the Transport
// might hide an answer. Such a Transport must not repeat a request: a write that is applied twice, or late, can take a
// lock away from its holder. If the Transport repeats a request under the same context, the repository notices that,
// and returns an error whatever the answer is.
func Configure(o *minio.Options) {
	if o.Transport == nil {
		o.Transport = httptransport.Bare()
	}
	if !httptransport.IsWatched(o.Transport) {
		o.Transport = httptransport.Watched(o.Transport)
	}
	o.MaxRetries = 1
	o.Region = cmp.Or(o.Region, defaultRegion)
}

// New returns the repository in a bucket. It makes no request. The repository also implements [store.Describer], in two
// requests, [store.BatchDeleter], and [store.ConditionalDeleter], which returns [store.ErrConditionUnsent].
//
//	opts := &minio.Options{Creds: credentials, Secure: true}
//	repolockminio.Configure(opts)
//	client, err := minio.New("host:9000", opts)
//
// New returns [store.ErrConfig] if [Configure] hasn't set up the client's options, and [store.ErrURL] if the bucket or
// the options can't be used.
func New(c *minio.Client, bucket string, opts Options) (store.Store, error) {
	return repository(c, bucket, opts, nil)
}

func repository(c *minio.Client, bucket string, opts Options, found *chain) (store.Store, error) {
	if !httptransport.IsWatched(c.CredContext().Client.Transport) {
		return nil, fmt.Errorf("%w: minio: the client's options weren't set up by Configure", store.ErrConfig)
	}
	place, err := in(c.EndpointURL(), bucket, opts)
	if err != nil {
		return nil, err
	}
	return s3api.New(&client{api: c, bucket: bucket, headers: opts.headers(), chain: found}, place), nil
}

// in returns the place of a repository on a server.
func in(server *url.URL, bucket string, opts Options) (s3api.Place, error) {
	if strings.Contains(bucket, ":") {
		return s3api.Place{}, fmt.Errorf("%w: minio: TENANT:BUCKET is a bucket of Ceph's, for an s3: URL: s3://TENANT:BUCKET/PREFIX?endpoint=https://HOST", store.ErrURL)
	}
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return s3api.Place{}, fmt.Errorf("%w: minio: %q can't be a bucket's name", store.ErrURL, bucket)
	}
	prefix, conditions, err := s3api.Options(opts.Prefix, opts.Conditions, store.Claimed)
	return s3api.Place{
		Name: "minio", Bucket: bucket, Prefix: prefix, Host: server.Host, Endpoint: server.Scheme + "://" + server.Host,
		PlainHint: "put tls=false into the URL if the server must be used without TLS", Own: own(server), KeyCursor: true,
		Conditions: conditions, Deletions: store.Unsupported, // MinIO ignores If-Match on a deletion
		Headers: opts.headers(), Fresh: opts.FreshListings,
	}, cmp.Or(err, opts.headers().Check())
}

// Open returns the repository that a URL names: see the package comment. It reads the environment and the files of mc
// and the AWS command line, and makes no request. It returns [store.ErrURL] or [store.ErrConfig].
func Open(_ context.Context, u *url.URL) (store.Store, error) {
	t, err := parse(u)
	if err != nil {
		return nil, err
	}
	transport := httptransport.Bare()
	if transport.TLSClientConfig, err = trusting(); err != nil {
		return nil, &store.Error{Op: "open", Key: t.bucket, Err: err}
	}
	found := credentialsOf(t.alias)
	opts := &minio.Options{
		Creds:        credentials.New(found),
		Secure:       t.tls,
		Region:       t.region,
		Transport:    transport,
		BucketLookup: minio.BucketLookupPath,
	}
	Configure(opts)
	client, err := minio.New(u.Host, opts)
	if err != nil {
		return nil, fmt.Errorf("%w: minio: %s can't be a server's address", store.ErrURL, u.Host)
	}
	return repository(client, t.bucket, t.Options, found)
}

// Check returns the store.ErrURL that Open would return for a URL, or nil. It makes no request.
func Check(u *url.URL) error {
	_, err := parse(u)
	return err
}

// target is a parsed URL.
type target struct {
	bucket, region, alias string
	tls                   bool
	Options
}

func parse(u *url.URL) (t target, err error) {
	bucket, path, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if bucket == "" {
		return t, fmt.Errorf("%w: minio: it is minio://HOST:PORT/BUCKET/PREFIX", store.ErrURL)
	}
	if _, err := port.Of(u); err != nil {
		return t, fmt.Errorf("%w: minio: %w", store.ErrURL, err)
	}
	if strings.Contains(u.Hostname(), "%") {
		return t, fmt.Errorf("%w: minio: MinIO's library takes no zone of an IPv6 address: write s3://BUCKET/PREFIX?endpoint=http://[fe80::1%%25eth0]:9000", store.ErrURL)
	}
	q, err := httptransport.Query(u, append([]string{"tls", "region", "alias", "conditions", "listings"}, s3api.Parameters...)...)
	tls, err1 := s3api.Bool("tls", q["tls"], true)
	fresh, err3 := s3api.Fresh(q["listings"])
	t = target{bucket, q["region"], q["alias"], tls, Options{
		Prefix: path, Conditions: q["conditions"], FreshListings: fresh, Encryption: q["sse"], EncryptionKey: q["sse-key"], ACL: q["acl"],
	}}
	_, err2 := in(u, bucket, t.Options)
	if err := s3api.CheckRegion(t.region); err != nil {
		return t, fmt.Errorf("%w: minio: %w", store.ErrURL, err)
	}
	return t, cmp.Or(err2, err, err1, err3)
}

// own returns a function that reports whether the store itself has sent a request under its context. The library lends
// its HTTP client and the context to providers of credentials, so a request can also be theirs. MinIO's STS has the
// server's address, but its requests are POSTs, and a store sends a POST only to delete many objects. At Amazon
// a host that contains "s3" counts as the store, because the library replaces the endpoint by the region's.
func own(endpoint *url.URL) func(*http.Request) bool {
	server, amazon := address(endpoint), s3utils.IsAmazonEndpoint(*endpoint)
	return func(r *http.Request) bool {
		host := address(r.URL)
		return (r.Method != http.MethodPost || r.URL.Query().Has("delete")) &&
			(host == server || strings.HasSuffix(host, "."+server) || amazon && strings.Contains(host, "s3"))
	}
}

// address returns a URL's host without the default port of its scheme, because the library strips that too.
func address(u *url.URL) string {
	return strings.TrimSuffix(u.Host, map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
}
