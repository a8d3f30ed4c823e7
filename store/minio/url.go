package minio

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/repolock/repolock/internal/port"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
	"github.com/repolock/repolock/store/internal/s3api"
)

// Open returns the repository that a URL names: see the package comment. It reads the
// environment and the files of mc and the AWS command line, and makes no request. Its
// errors are [store.ErrURL] and [store.ErrConfig].
func Open(_ context.Context, u *url.URL) (store.Store, error) {
	t, err := parse(u)
	if err != nil {
		return nil, err
	}
	transport := httptransport.Bare()
	if transport.TLSClientConfig, err = trusting(); err != nil {
		return nil, &store.Error{Op: "open", Key: t.bucket, Err: err}
	}
	opts := &minio.Options{
		Creds:        credentialsOf(t.alias),
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
	return New(client, t.bucket, t.Options)
}

// Check returns a store.ErrURL that says what is wrong with a URL, or nil. It opens nothing and
// makes no request.
func Check(u *url.URL) error {
	_, err := parse(u)
	return err
}

// target is what a URL says.
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
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return t, fmt.Errorf("%w: minio: %q can't be a bucket's name", store.ErrURL, bucket)
	}
	if _, err := port.Of(u); err != nil {
		return t, fmt.Errorf("%w: minio: %w", store.ErrURL, err)
	}
	q, err := httptransport.Query(u, "tls", "region", "alias", "conditions")
	tls, err1 := s3api.Bool("tls", q["tls"], true)
	_, _, err2 := s3api.Options(path, q["conditions"], store.Claimed)
	return target{bucket, q["region"], q["alias"], tls, Options{Prefix: path, Conditions: q["conditions"]}}, cmp.Or(err, err1, err2)
}
