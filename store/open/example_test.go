package open_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

func ExampleStore() {
	path, err := os.MkdirTemp("", "repository") // or "s3://BUCKET/PREFIX", or a URL of another scheme
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(path)
	s, err := open.Store(context.Background(), path)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Properties().Name)
	// Output: dir
}

// Check finds mistakes in a configuration before anything is opened.
func ExampleCheck() {
	fmt.Println(open.Check("s3://backups/nightly?region=eu-west-1"))
	err := open.Check("s3://backups/nightly?regoin=eu-west-1")
	fmt.Println(err, errors.Is(err, store.ErrURL))
	fmt.Println(open.Check("gs://backups/nightly"))
	// Output:
	// <nil>
	// invalid repository URL: it has an unknown parameter "regoin"; known: region, endpoint, profile, path-style, conditions, if-match, requester-pays, listings, sse, sse-key, acl true
	// invalid repository URL: repolock keeps no locks in Google Cloud Storage: name a bucket on S3, MinIO or B2, a directory on an SSH server, or one that all machines mount
}

func ExampleSchemes() {
	for _, s := range open.Schemes() {
		fmt.Println(s.Example)
	}
	// Output:
	// file:///PATH
	// s3://BUCKET/PREFIX
	// minio://HOST:PORT/BUCKET/PREFIX
	// b2://BUCKET/PREFIX
	// sftp://USER@HOST:PORT/PATH
}
