package minio

import (
	"cmp"
	"context"
	"fmt"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
	"github.com/repolock/repolock/store/internal/s3api"
)

// Store is a repository in a bucket. Its methods can be called concurrently.
//
// Each method sends one request; the comment of package s3 names the exceptions, which
// are a second attempt after a refusal and the removal of old versions. The errors are
// those of [store.Store].
type Store struct{ api *s3api.Store }

var (
	_ store.Store              = (*Store)(nil)
	_ store.Describer          = (*Store)(nil)
	_ store.Answerer           = (*Store)(nil)
	_ store.ConditionalDeleter = (*Store)(nil)
)

// Options of a repository. The zero value is a repository at the root of its bucket.
type Options struct {
	// Prefix of all keys. Slashes around it are ignored.
	Prefix string
	// Conditions is how far conditional puts can be relied on: "auto", "kept" or "none",
	// as in a URL. "" is "auto".
	Conditions string
}

// defaultRegion is MinIO's own. Without a region the library asks for it first.
const defaultRegion = "us-east-1"

// Configure sets up a client's options for [New]: requests that are sent once, and a
// transport that notes the answers. It replaces Transport by one that is built on it,
// or by one with short timeouts if there is none, and sets MaxRetries, and Region if
// there is none.
//
// Behind a Transport that is no [*http.Transport], [New]'s Store never returns
// [store.ErrUnreachable] because of an answer that is missing: what can't be shown to be
// silence is no silence.
func Configure(o *minio.Options) {
	if o.Transport == nil {
		o.Transport = httptransport.Bare()
	}
	if !s3api.Transports(o.Transport) {
		o.Transport = s3api.Transport(o.Transport)
	}
	o.MaxRetries = 1
	o.Region = cmp.Or(o.Region, defaultRegion)
}

// New returns the repository in a bucket. It makes no request.
//
//	opts := &minio.Options{Creds: credentials, Secure: true}
//	repolockminio.Configure(opts)
//	client, err := minio.New("host:9000", opts)
//
// The error is [store.ErrConfig] for a client whose options [Configure] hasn't set up, and
// [store.ErrURL] for a bucket or options that can't be used.
func New(c *minio.Client, bucket string, opts Options) (*Store, error) {
	if !s3api.Transports(c.CredContext().Client.Transport) {
		return nil, fmt.Errorf("%w: minio: the client's options weren't set up by Configure", store.ErrConfig)
	}
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return nil, fmt.Errorf("%w: minio: %q can't be a bucket's name", store.ErrURL, bucket)
	}
	prefix, err := s3api.Prefix(opts.Prefix)
	if err != nil {
		return nil, err
	}
	conditions, err := s3api.Conditions(opts.Conditions, store.Claimed)
	if err != nil {
		return nil, err
	}
	endpoint := c.EndpointURL()
	return &Store{s3api.New(&client{api: c, bucket: bucket}, s3api.Place{
		Bucket:    bucket,
		Prefix:    prefix,
		Host:      endpoint.Host,
		Endpoint:  endpoint.Scheme + "://" + endpoint.Host,
		PlainHint: "put tls=false into the URL if that is wanted",
	}, "minio", conditions)}, nil
}

// Properties returns "minio" and what Options.Conditions says of the server. The store's
// clock is the server's.
func (s *Store) Properties() store.Properties { return s.api.Properties() }

// Put stores body under key, and then removes the version that this Store put there
// before, in a bucket that keeps versions.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	return s.api.Put(ctx, key, body, opts)
}

// Get reads an object of at most limit bytes.
func (s *Store) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	return s.api.Get(ctx, key, limit)
}

// List returns a page of up to 1000 objects.
func (s *Store) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	return s.api.List(ctx, prefix, cursor)
}

// Delete removes an object. In a bucket that keeps versions it then removes those that
// this Store put, and the delete marker if that hides nothing else.
func (s *Store) Delete(ctx context.Context, key string) error { return s.api.Delete(ctx, key) }

// DeleteIfMatch sends nothing and returns [store.ErrConditionUnsent]: MinIO ignores
// If-Match on a deletion.
func (s *Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	return s.api.DeleteIfMatch(ctx, key, etag)
}

// Describe asks in two requests whether the bucket keeps versions and has Object Lock.
func (s *Store) Describe(ctx context.Context) (store.Description, error) { return s.api.Describe(ctx) }

// Answered reports whether the server refused a request of this Store that was then sent
// again.
func (s *Store) Answered() bool { return s.api.Answered() }
