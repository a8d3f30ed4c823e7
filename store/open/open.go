// Package open opens the store that a URL names, so that a program doesn't depend on
// the backends.
//
// A repository in a directory is named by its path, as any program takes it: relative or
// absolute, with spaces, percent signs and any other characters, which all stand for
// themselves. A name that begins with a scheme (letters and a colon) is a URL; write a
// relative path that looks like one with ./ in front ("./a:b"). On Windows a single
// letter is a drive.
//
// A file URL (file:///srv/repo, file:/srv/repo, file://localhost/srv/repo) is absolute,
// names a directory of this machine, and is percent-decoded. It has no query and no
// fragment: write "?" and "#" in a name as %3F and %23.
//
// [Schemes] returns the other URLs. A program that has a client of its own calls New of the
// backend's package instead.
package open

import (
	"context"

	"github.com/repolock/repolock/store"
)

// Store opens the store that a URL or a path names. It makes no request. The error is
// store.ErrURL for a URL that can't be understood, store.ErrNotFound for a directory that
// doesn't exist, and store.ErrConfig for a bucket whose credentials or settings can't be
// used.
func Store(ctx context.Context, rawURL string) (store.Store, error) {
	location, err := Parse(rawURL)
	if err != nil {
		return nil, err
	}
	scheme, _ := lookup(location.Scheme)
	s, err := scheme.open(ctx, location)
	if err != nil {
		return nil, err // without s, which can be a nil pointer
	}
	return s, nil
}

// Check returns an error that says what is wrong with a URL or a path, or nil. It opens nothing
// and makes no request. Its errors are store.ErrURL, and show no part of the URL that could be a
// secret.
func Check(rawURL string) error {
	location, err := Parse(rawURL)
	if err != nil || location.URL == nil {
		return err
	}
	scheme, _ := lookup(location.Scheme)
	return scheme.check(location.URL)
}
