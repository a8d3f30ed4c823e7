package miniotest

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Client returns a client with the root's rights, to set a test up and to look at its objects.
func (s *Server) Client() *minio.Client {
	s.t.Helper()
	client, err := minio.New(s.address, &minio.Options{Creds: credentials.NewStaticV4(User, Password, "")})
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

// Bucket makes a bucket, and removes it with all objects when the test ends.
func (s *Server) Bucket() string {
	s.t.Helper()
	return s.bucket(minio.MakeBucketOptions{})
}

func (s *Server) bucket(opts minio.MakeBucketOptions) string {
	s.t.Helper()
	client := s.Client()
	bucket := "repolock-" + strings.ToLower(rand.Text()[:16])
	if err := client.MakeBucket(s.t.Context(), bucket, opts); err != nil {
		s.t.Fatal(err)
	}
	if s.shared { // a test's own server is removed as a whole
		s.t.Cleanup(func() {
			ctx := context.Background() // the test's own has ended
			s.empty(ctx, bucket)
			if err := client.RemoveBucketWithOptions(ctx, bucket, minio.RemoveBucketOptions{}); err != nil {
				s.t.Errorf("bucket %s is left over: %v", bucket, err)
			}
		})
	}
	return bucket
}

// Keys lists the keys of a bucket.
func (s *Server) Keys(bucket string) (keys []string) {
	s.t.Helper()
	for o := range s.Client().ListObjects(s.t.Context(), bucket, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			s.t.Fatal(o.Err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

// empty removes all versions, also retained ones.
func (s *Server) empty(ctx context.Context, bucket string) {
	versions := s.Client().ListObjects(ctx, bucket, minio.ListObjectsOptions{Recursive: true, WithVersions: true})
	for err := range s.Client().RemoveObjects(ctx, bucket, versions, minio.RemoveObjectsOptions{GovernanceBypass: true}) {
		s.t.Errorf("%s: %v", err.ObjectName, err.Err)
	}
}
