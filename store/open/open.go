// Package open gives the store that a URL names, so that programs needn't know
// the backends.
//
// A repository in a directory is named by its path, as any program takes it:
// relative or absolute, with spaces, percent signs and whatever else, all of it
// meant as it is written. What begins with a scheme, letters and a colon, is a
// URL; a relative path that looks like one is written with ./ in front ("./a:b").
// On Windows a single letter is a drive.
//
// A file URL (file:///srv/repo, file:/srv/repo, file://localhost/srv/repo) is
// absolute, names a directory of this machine, and is percent-decoded. It has no
// query and no fragment: "?" and "#" in a name are written %3F and %23.
package open

import (
	"context"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/b2"
	"github.com/repolock/repolock/store/dir"
	"github.com/repolock/repolock/store/minio"
	"github.com/repolock/repolock/store/s3"
)

// Store opens the store that a URL or a path names. Where it can't be
// understood the error is store.ErrURL; where there is nothing it is
// store.ErrNotFound.
func Store(ctx context.Context, rawURL string) (store.Store, error) {
	location, err := Parse(rawURL)
	if err != nil {
		return nil, err
	}
	switch location.Scheme {
	case "s3":
		return opened(s3.Open(ctx, location.URL))
	case "minio":
		return opened(minio.Open(ctx, location.URL))
	case "b2":
		return opened(b2.Open(ctx, location.URL))
	default:
		return opened(dir.Open(ctx, location.Path, dir.Options{}))
	}
}

// Check finds what is wrong with a URL or a path without opening what it names. Its
// errors are store.ErrURL, and show no part of the URL that could be a secret.
func Check(rawURL string) error {
	location, err := Parse(rawURL)
	if err != nil {
		return err
	}
	switch location.Scheme {
	case "s3":
		return s3.Check(location.URL)
	case "minio":
		return minio.Check(location.URL)
	case "b2":
		return b2.Check(location.URL)
	default:
		return nil
	}
}

// opened keeps a nil pointer from becoming a store.
func opened[S store.Store](s S, err error) (store.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
