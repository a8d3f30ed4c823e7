package minio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/minio/minio-go/v7"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
	"github.com/repolock/repolock/store/internal/s3api"
)

// client is minio-go for one bucket.
type client struct {
	api    *minio.Client
	bucket string
}

var _ s3api.Client = (*client)(nil)

func (c *client) Put(ctx context.Context, key string, body []byte, ifAbsent bool, ifMatch string) error {
	// Buckets with Object Lock want a checksum, and every server knows this one.
	opts := minio.PutObjectOptions{ContentType: "application/json", SendContentMd5: true, DisableMultipart: true}
	if ifAbsent {
		opts.SetMatchETagExcept("*")
	}
	if ifMatch != "" {
		opts.SetMatchETag(ifMatch)
	}
	_, err := c.api.PutObject(ctx, c.bucket, key, bytes.NewReader(body), int64(len(body)), opts)
	return err
}

// Get uses the library's core, which sends one request at once.
func (c *client) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	body, _, _, err := minio.Core{Client: c.api}.GetObject(ctx, c.bucket, key, minio.GetObjectOptions{})
	return body, err
}

// pageSize is the largest page of a server.
const pageSize = 1000

// List reads the objects of one request from the library's iterator. The cursor is the last
// key.
func (c *client) List(ctx context.Context, prefix, cursor string) ([]store.Object, string, error) {
	var objects []store.Object
	no := false
	for o := range c.api.ListObjectsIter(ctx, c.bucket, minio.ListObjectsOptions{
		Prefix: prefix, Recursive: true, MaxKeys: pageSize, StartAfter: cursor, FetchOwner: &no,
	}) {
		if errors.Is(o.Err, httptransport.ErrPageEnd) {
			if len(objects) == 0 {
				return nil, "", fmt.Errorf("%w: a page is empty, and says that the listing goes on", store.ErrListing)
			}
			return objects, objects[len(objects)-1].Key, nil
		}
		if o.Err != nil {
			return nil, "", o.Err
		}
		objects = append(objects, store.Object{Key: o.Key, ETag: o.ETag, Size: o.Size, ModTime: o.LastModified})
		if len(objects) == pageSize {
			return objects, o.Key, nil
		}
	}
	return objects, "", ctx.Err()
}

func (c *client) Delete(ctx context.Context, key, version string) error {
	return c.api.RemoveObject(ctx, c.bucket, key, minio.RemoveObjectOptions{VersionID: version})
}

// DeleteAll reads the library's iterator, which sends one request for up to 1000 keys.
func (c *client) DeleteAll(ctx context.Context, keys []string) ([]s3api.Deleted, error) {
	objects := func(yield func(minio.ObjectInfo) bool) {
		for _, key := range keys {
			if !yield(minio.ObjectInfo{Key: key}) {
				return
			}
		}
	}
	results, err := c.api.RemoveObjectsWithIter(ctx, c.bucket, objects, minio.RemoveObjectsOptions{})
	if err != nil {
		return nil, err
	}
	var deleted []s3api.Deleted
	for r := range results {
		if r.Err != nil {
			err = r.Err
			continue
		}
		deleted = append(deleted, s3api.Deleted{Key: r.ObjectName, Marker: r.DeleteMarkerVersionID})
	}
	if len(deleted) == 0 {
		return nil, err
	}
	return deleted, ctx.Err()
}

func (c *client) Versions(ctx context.Context, key string) ([]s3api.Version, error) {
	var versions []s3api.Version
	for o := range c.api.ListObjectsIter(ctx, c.bucket, minio.ListObjectsOptions{
		Prefix: key, Recursive: true, MaxKeys: pageSize, WithVersions: true,
	}) {
		if errors.Is(o.Err, httptransport.ErrPageEnd) {
			break
		}
		if o.Err != nil {
			return nil, o.Err
		}
		versions = append(versions, s3api.Version{Key: o.Key, ID: o.VersionID, Marker: o.IsDeleteMarker})
		if len(versions) == pageSize {
			break
		}
	}
	return versions, ctx.Err()
}

func (c *client) Versioning(ctx context.Context) (bool, error) {
	v, err := c.api.GetBucketVersioning(ctx, c.bucket)
	return v.Enabled(), err
}

func (c *client) ObjectLock(ctx context.Context) (bool, error) {
	lock, _, _, _, err := c.api.GetObjectLockConfig(ctx, c.bucket)
	return lock == "Enabled", err
}
