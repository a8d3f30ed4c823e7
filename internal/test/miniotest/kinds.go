package miniotest

import (
	"net/url"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/sse"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

// Kind is a kind of bucket on the shared server.
type Kind struct{ server, bucket string }

// Buckets makes one of each kind: plain, versioned, with Object Lock and a default
// retention, and encrypted by the server.
func Buckets(t testing.TB) map[string]Kind {
	t.Helper()
	s := Shared(t)
	kinds := make(map[string]Kind)
	for name, set := range map[string]func(*minio.Client, string) error{
		"plain": func(*minio.Client, string) error { return nil },
		"versioned": func(c *minio.Client, bucket string) error {
			return c.EnableVersioning(t.Context(), bucket)
		},
		"object lock": func(c *minio.Client, bucket string) error {
			mode, days, unit := minio.Governance, uint(1), minio.Days
			return c.SetObjectLockConfig(t.Context(), bucket, &mode, &days, &unit)
		},
		"encrypted": func(c *minio.Client, bucket string) error {
			return c.SetBucketEncryption(t.Context(), bucket, sse.NewConfigurationSSES3())
		},
	} {
		bucket := s.bucket(minio.MakeBucketOptions{ObjectLocking: name == "object lock"})
		if err := set(s.Client(), bucket); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kinds[name] = Kind{s.address, bucket}
	}
	return kinds
}

// Bucket is its name.
func (k Kind) Bucket() string { return k.bucket }

// S3 is the URL of a prefix in the bucket for store/s3, and MinIO for store/minio.
func (k Kind) S3(prefix string) string {
	return "s3://" + k.bucket + "/" + escape(prefix) + "?endpoint=" + url.QueryEscape("http://"+k.server)
}

func (k Kind) MinIO(prefix string) string {
	return "minio://" + k.server + "/" + k.bucket + "/" + escape(prefix) + "?tls=false"
}

func escape(prefix string) string { return strings.ReplaceAll(url.PathEscape(prefix), "%2F", "/") }

// Open opens a URL with the root's rights.
func Open(t testing.TB, url string) store.Store {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": User, "AWS_SECRET_ACCESS_KEY": Password, "MINIO_ROOT_USER": User, "MINIO_ROOT_PASSWORD": Password,
	} {
		t.Setenv(name, value)
	}
	s, err := open.Store(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
