package minio

import (
	"cmp"
	"fmt"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
	"github.com/repolock/repolock/store/internal/s3api"
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
// transport that notes the answers. It replaces Transport by one that is built on it, or by
// one with short timeouts if there is none, and sets MaxRetries, and Region if there is none.
// Of an [*http.Transport] it takes a copy, with connections of its own, and without protocols
// of RegisterProtocol: what a protocol's transport hides or repeats couldn't be seen.
//
// Behind a Transport that is no [*http.Transport], [New]'s store never returns
// [store.ErrUnreachable] because of an answer that is missing: what can't be shown to be
// silence is no silence. Such a Transport must not repeat a request by itself: a write that was
// applied twice, or late, can take a lock away from its holder. New's store notices a repetition
// that keeps the request's context, and returns an error whatever the answer.
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

// New returns the repository in a bucket. It makes no request. The repository is also a
// [store.Describer], in two requests, a [store.Answerer], a [store.BatchDeleter], and a
// [store.ConditionalDeleter] that returns [store.ErrConditionUnsent].
//
//	opts := &minio.Options{Creds: credentials, Secure: true}
//	repolockminio.Configure(opts)
//	client, err := minio.New("host:9000", opts)
//
// The error is [store.ErrConfig] for a client whose options [Configure] hasn't set up, and
// [store.ErrURL] for a bucket or options that can't be used.
func New(c *minio.Client, bucket string, opts Options) (store.Store, error) {
	if !httptransport.IsWatched(c.CredContext().Client.Transport) {
		return nil, fmt.Errorf("%w: minio: the client's options weren't set up by Configure", store.ErrConfig)
	}
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return nil, fmt.Errorf("%w: minio: %q can't be a bucket's name", store.ErrURL, bucket)
	}
	prefix, conditions, err := s3api.Options(opts.Prefix, opts.Conditions, store.Claimed)
	if err != nil {
		return nil, err
	}
	endpoint := c.EndpointURL()
	return s3api.New(&client{api: c, bucket: bucket}, s3api.Place{
		Name:       "minio",
		Bucket:     bucket,
		Prefix:     prefix,
		Host:       endpoint.Host,
		Endpoint:   endpoint.Scheme + "://" + endpoint.Host,
		PlainHint:  "put tls=false into the URL if that is wanted",
		Own:        own(endpoint),
		Conditions: conditions,
		Deletions:  store.Unsupported, // MinIO ignores If-Match there
		KeyCursor:  true,
	}), nil
}
