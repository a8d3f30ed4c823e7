package minio

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/s3api"
	"github.com/repolock/repolock/store/internal/web"
)

// Store is a repository in a bucket.
type Store struct{ *s3api.Store }

var (
	_ store.Store     = (*Store)(nil)
	_ store.Describer = (*Store)(nil)
)

// defaultRegion is MinIO's own. Without one the library asks for it first.
const defaultRegion = "us-east-1"

// Open gives the repository that a URL names: see the package comment. It makes
// no request.
func Open(_ context.Context, u *url.URL) (*Store, error) {
	t, err := parse(u)
	if err != nil {
		return nil, err
	}
	bare := web.Bare()
	if bare.TLSClientConfig, err = trusting(); err != nil {
		return nil, &store.Error{Op: "open", Key: t.bucket, Err: err}
	}
	transport := pages{s3api.Transport(bare)}
	keys := credentialsOf(t.alias)
	api, err := minio.New(u.Host, &minio.Options{
		Creds:        keys,
		Secure:       t.tls,
		Region:       t.region,
		Transport:    transport,
		BucketLookup: minio.BucketLookupPath,
		MaxRetries:   1,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: minio: %s can't be a server's address", store.ErrURL, u.Host)
	}
	place := s3api.Place{Bucket: t.bucket, Prefix: t.prefix, Host: u.Host, PlainHint: "put tls=false into the URL if that is wanted"}
	place.Endpoint = map[bool]string{true: "https://", false: "http://"}[t.tls] + u.Host
	return &Store{s3api.New(&client{api: api, bucket: t.bucket, keys: keys}, place, "minio", t.conditions)}, nil
}

// Check finds what is wrong with a URL before anything is opened.
func Check(u *url.URL) error {
	_, err := parse(u)
	return err
}

// target is what a URL says.
type target struct {
	bucket, prefix, region, alias string
	tls                           bool
	conditions                    store.Condition
}

func parse(u *url.URL) (t target, err error) {
	bucket, path, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if bucket == "" {
		return t, fmt.Errorf("%w: minio: it is minio://HOST:PORT/BUCKET/PREFIX", store.ErrURL)
	}
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return t, fmt.Errorf("%w: minio: %q can't be a bucket's name", store.ErrURL, bucket)
	}
	t.bucket = bucket
	if t.prefix, err = s3api.Prefix(path); err != nil {
		return t, err
	}
	q, err := web.Query(u, "tls", "region", "alias", "conditions")
	if err != nil {
		return t, err
	}
	if t.tls, err = s3api.Bool("tls", q["tls"], true); err != nil {
		return t, err
	}
	if t.region = q["region"]; t.region == "" {
		t.region = defaultRegion
	}
	t.alias = q["alias"]
	t.conditions, err = s3api.Conditions(q["conditions"], store.Claimed)
	return t, err
}
