//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

// bucket is a bucket on MinIO, and a proxy in front of it.
type bucket struct {
	name  string
	host  string // MinIO's own
	proxy *proxy.Proxy
	api   *minio.Client
}

// endpoint is MinIO's URL.
func endpoint() (string, error) {
	endpoint := os.Getenv("REPOLOCK_E2E_MINIO")
	if endpoint == "" {
		return "", errors.New("REPOLOCK_E2E_MINIO isn't set: run this by make bench, which starts MinIO")
	}
	return endpoint, nil
}

// newBucket makes a bucket of the bench's own.
func newBucket(ctx context.Context) (*bucket, error) {
	endpoint, err := endpoint()
	if err != nil {
		return nil, err
	}
	for name, value := range environment {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	b := &bucket{name: "bench-" + strings.ToLower(rand.Text()[:16]), host: strings.TrimPrefix(endpoint, "http://")}
	b.api, err = minio.New(b.host, &minio.Options{Creds: credentials.NewStaticV4(miniotest.User, miniotest.Password, "")})
	if err != nil {
		return nil, err
	}
	if err := b.api.MakeBucket(ctx, b.name, minio.MakeBucketOptions{}); err != nil {
		return nil, fmt.Errorf("making a bucket on MinIO: %w", err)
	}
	if b.proxy, err = proxy.New(endpoint); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// environment has the credentials, and nothing else that drivers look for.
var environment = map[string]string{
	"AWS_ACCESS_KEY_ID": miniotest.User, "AWS_SECRET_ACCESS_KEY": miniotest.Password,
	"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	"MINIO_ACCESS_KEY": miniotest.User, "MINIO_SECRET_KEY": miniotest.Password,
}

// close removes the bucket with all objects.
func (b *bucket) close() {
	if b.proxy != nil {
		b.proxy.Close()
	}
	err := b.api.RemoveBucketWithOptions(context.Background(), b.name, minio.RemoveBucketOptions{ForceDelete: true})
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: bucket %s is left over: %v\n", b.name, err)
	}
}

// s3 and minio name a repository in the bucket, for one of the two drivers.
func (b *bucket) s3(host, prefix string) string {
	return "s3://" + b.name + "/" + prefix + "?region=us-east-1&path-style=true&endpoint=http://" + host
}

func (b *bucket) minio(host, prefix string) string {
	return "minio://" + host + "/" + b.name + "/" + prefix + "?tls=false"
}

// warm opens a store, and makes it sign in and connect.
func warm(ctx context.Context, url string) (store.Store, error) {
	s, err := open.Store(ctx, url)
	if err != nil {
		return nil, err
	}
	_, err = s.List(ctx, "warm-up", "")
	return s, err
}
