package minio

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/encrypt"

	"github.com/repolock/repolock/store/internal/httptransport"
	"github.com/repolock/repolock/store/internal/s3api"
)

// client is minio-go for one bucket.
type client struct {
	api     *minio.Client
	bucket  string
	headers s3api.PutHeaders
	chain   *chain // where Open finds the credentials, or nil
}

var _ s3api.Client = (*client)(nil)

func (c *client) Put(ctx context.Context, key string, body []byte, ifAbsent bool, ifMatch string) error {
	// Buckets with Object Lock need a checksum, and every server knows this checksum.
	opts := minio.PutObjectOptions{ContentType: "application/json", SendContentMd5: true, DisableMultipart: true}
	if c.headers != (s3api.PutHeaders{}) {
		opts.ServerSideEncryption = headers(c.headers)
	}
	if ifAbsent {
		opts.SetMatchETagExcept("*")
	}
	if ifMatch != "" {
		opts.SetMatchETag(ifMatch)
	}
	_, err := c.api.PutObject(ctx, c.bucket, key, bytes.NewReader(body), int64(len(body)), opts)
	return err
}

// headers sends the PutHeaders by the library's interface for encryption, which lacks one of Amazon's kinds.
type headers s3api.PutHeaders

func (headers) Type() encrypt.Type { return encrypt.S3 }

func (h headers) Marshal(header http.Header) {
	for name, value := range map[string]string{
		"X-Amz-Server-Side-Encryption": h.SSE, "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": h.SSEKey, "X-Amz-Acl": h.ACL,
	} {
		if value != "" {
			header.Set(name, value)
		}
	}
}

// Get uses the library's Core, whose GetObject sends one request before it returns.
func (c *client) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	body, _, _, err := minio.Core{Client: c.api}.GetObject(ctx, c.bucket, key, minio.GetObjectOptions{})
	return body, err
}

// List sends the first request of the library's iterator. The cursor is the last key.
func (c *client) List(ctx context.Context, prefix, cursor string) error {
	no := false
	return c.first(ctx, minio.ListObjectsOptions{Prefix: prefix, StartAfter: cursor, FetchOwner: &no})
}

func (c *client) Versions(ctx context.Context, key string) error {
	return c.first(ctx, minio.ListObjectsOptions{Prefix: key, WithVersions: true})
}

// first sends the first request of a listing. If the page is empty but not the last, the library tries to send a second
// request, which fails with ErrPageEnd.
func (c *client) first(ctx context.Context, opts minio.ListObjectsOptions) error {
	opts.Recursive, opts.MaxKeys = true, 1000
	for o := range c.api.ListObjectsIter(ctx, c.bucket, opts) {
		if o.Err != nil && !errors.Is(o.Err, httptransport.ErrPageEnd) {
			return o.Err
		}
		break
	}
	return ctx.Err()
}

// Delete ignores ifMatch, because Store never sets it for this client.
func (c *client) Delete(ctx context.Context, key, version, _ string) error {
	return c.api.RemoveObject(ctx, c.bucket, key, minio.RemoveObjectOptions{VersionID: version})
}

// DeleteAll sends one request for up to 1000 keys. It reads the library's iterator to its end.
func (c *client) DeleteAll(ctx context.Context, keys []string) error {
	objects := func(yield func(minio.ObjectInfo) bool) {
		for _, key := range keys {
			if !yield(minio.ObjectInfo{Key: key}) {
				return
			}
		}
	}
	results, err := c.api.RemoveObjectsWithIter(ctx, c.bucket, objects, minio.RemoveObjectsOptions{})
	if err != nil {
		return err
	}
	deleted := false
	for r := range results {
		err, deleted = cmp.Or(r.Err, err), deleted || r.Err == nil
	}
	if deleted {
		return ctx.Err()
	}
	return err
}

func (c *client) Versioning(ctx context.Context) error {
	_, err := c.api.GetBucketVersioning(ctx, c.bucket)
	return err
}

func (c *client) ObjectLock(ctx context.Context) error {
	_, _, _, _, err := c.api.GetObjectLockConfig(ctx, c.bucket)
	return err
}
