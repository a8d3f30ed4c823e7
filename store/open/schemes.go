package open

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/b2"
	"github.com/repolock/repolock/store/dir"
	"github.com/repolock/repolock/store/minio"
	"github.com/repolock/repolock/store/s3"
)

// Scheme describes one kind of repository URL.
type Scheme struct {
	// Name of the scheme, in lower case.
	Name string
	// Help names the kind of store.
	Help string
	// Example of a URL.
	Example string
	// Environment names the variables that credentials are read from, "" if there are
	// none.
	Environment string

	check func(*url.URL) error
	open  func(context.Context, Location) (store.Store, error)
}

// Schemes returns all kinds of repository URLs, file first.
func Schemes() []Scheme { return slices.Clone(schemes) }

// schemes has an entry for each backend, which is a package with a test of storetest.
var schemes = []Scheme{
	{"file", "a directory", "file:///PATH", "", nil, openDir},
	{"s3", "Amazon S3, or what speaks S3", "s3://BUCKET/PREFIX",
		"AWS_PROFILE, AWS_ACCESS_KEY_ID and all others of the AWS command line", s3.Check, bucket(s3.Open)},
	{"minio", "MinIO", "minio://HOST:PORT/BUCKET/PREFIX",
		"MINIO_ROOT_USER, MINIO_ROOT_PASSWORD, or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, or AWS_PROFILE", minio.Check, bucket(minio.Open)},
	{"b2", "Backblaze B2", "b2://BUCKET/PREFIX",
		"B2_APPLICATION_KEY_ID, B2_APPLICATION_KEY", b2.Check, bucket(b2.Open)},
}

// names returns the schemes' names for a message: "file, s3, minio, b2".
func names() string {
	var names []string
	for _, s := range schemes {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

func lookup(name string) (Scheme, bool) {
	i := slices.IndexFunc(schemes, func(s Scheme) bool { return s.Name == name })
	if i < 0 {
		return Scheme{}, false
	}
	return schemes[i], true
}

func openDir(ctx context.Context, l Location) (store.Store, error) {
	return dir.Open(ctx, l.Path, dir.Options{})
}

// bucket returns the open function of a scheme for a backend's Open.
func bucket[S store.Store](open func(context.Context, *url.URL) (S, error)) func(context.Context, Location) (store.Store, error) {
	return func(ctx context.Context, l Location) (store.Store, error) { return open(ctx, l.URL) }
}
