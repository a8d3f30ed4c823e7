// Package open opens the store that a URL names, so that a program doesn't depend on
// the backends.
//
// The name of a repository in a directory is its path, relative or absolute. Spaces, percent
// signs and all other characters stand for themselves. A name that begins with a scheme (letters
// and a colon) is a URL; write a relative path that looks like a URL with ./ in front ("./a:b").
// On Windows a single letter is a drive.
//
// A file URL (file:///srv/repo, file:/srv/repo, file://localhost/srv/repo) has the absolute path
// of a directory of this machine, percent-encoded. It has no query and no fragment: write "?" and
// "#" in a name as %3F and %23.
//
// [Schemes] returns the other kinds of URLs. A program with a client of its own calls New of the
// backend's package instead.
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
	"github.com/repolock/repolock/store/sftp"
)

// Store opens the store of a URL or a path. It makes no request. It returns store.ErrURL if the URL can't be
// understood, store.ErrNotFound if the directory doesn't exist, and store.ErrConfig if the credentials or settings of a
// bucket can't be used.
func Store(ctx context.Context, rawURL string) (store.Store, error) {
	location, err := Parse(rawURL)
	if err != nil {
		return nil, err
	}
	scheme, _ := lookup(location.Scheme)
	s, err := scheme.open(ctx, location)
	if err != nil {
		return nil, err // s might be a nil pointer
	}
	return s, nil
}

// Check returns the store.ErrURL that Store would return for a URL or a path, or nil. It opens nothing.
// The error shows no part of the URL that could be a secret.
func Check(rawURL string) error {
	location, err := Parse(rawURL)
	if err != nil || location.URL == nil {
		return err
	}
	scheme, _ := lookup(location.Scheme)
	return scheme.check(location.URL)
}

// Scheme describes one kind of repository URL.
type Scheme struct {
	// Name is the scheme, in lower case.
	Name string
	// Help names the kind of store.
	Help string
	// Example shows the form of a URL.
	Example string
	// Environment names the variables for credentials. It is "" if there are none.
	Environment string

	check func(*url.URL) error
	open  func(context.Context, Location) (store.Store, error)
}

// Schemes returns all kinds of repository URLs, file first.
func Schemes() []Scheme { return slices.Clone(schemes) }

// schemes has an entry for each backend. Every backend's package must pass the suite storetest.
var schemes = []Scheme{
	{"file", "a directory", "file:///PATH", "", nil, openDir},
	{"s3", "Amazon S3, or a server that speaks S3", "s3://BUCKET/PREFIX",
		"AWS_PROFILE, AWS_ACCESS_KEY_ID and all others of the AWS command line", s3.Check, bucket(s3.Open)},
	{"minio", "MinIO", "minio://HOST:PORT/BUCKET/PREFIX",
		"MINIO_ROOT_USER, MINIO_ROOT_PASSWORD, or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, or AWS_PROFILE", minio.Check, bucket(minio.Open)},
	{"b2", "Backblaze B2", "b2://BUCKET/PREFIX",
		"B2_APPLICATION_KEY_ID, B2_APPLICATION_KEY", b2.Check, bucket(b2.Open)},
	{"sftp", "a directory on a server that has SSH", "sftp://USER@HOST:PORT/PATH",
		"SSH_AUTH_SOCK, and the files of ssh: ~/.ssh/config, keys, known hosts", sftp.Check, bucket(sftp.Open)},
}

// names returns the names of the schemes for a message: "file, s3, minio, b2".
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
	return dir.Open(ctx, l.Path)
}

// bucket returns a backend's Open as the open function of a scheme.
func bucket[S store.Store](open func(context.Context, *url.URL) (S, error)) func(context.Context, Location) (store.Store, error) {
	return func(ctx context.Context, l Location) (store.Store, error) { return open(ctx, l.URL) }
}
