package b2

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/store"
)

// version is one version of a name.
type version struct {
	id   string
	time time.Time
	size int64
	// hides is set for a hide marker, and others that readers don't see.
	hides bool
}

func versionOf(f *base.File) version {
	return version{id: f.ID, time: f.Timestamp, size: f.Size, hides: f.Status != "upload"}
}

// pageSize is the largest page that is billed as one transaction.
const pageSize = 1000

// versions lists all versions of a name, newest first.
func (s *Store) versions(ctx context.Context, name string) ([]version, error) {
	type page struct {
		files            []*base.File
		nextName, nextID string
	}
	var all []version
	seen := make(map[string]bool)
	for next := (page{nextName: name}); next.nextName == name; {
		p, err := call(ctx, s, name, "listFiles", func(ctx context.Context, in *session) (page, error) {
			files, nextName, nextID, err := in.bucket.ListFileVersions(ctx, pageSize, name, next.nextID, name, "")
			return page{files, nextName, nextID}, err
		})
		if err != nil {
			return nil, err
		}
		known := len(seen)
		for _, f := range p.files {
			if f.Name != name {
				return all, nil // it begins with the name
			}
			seen[f.ID] = true
			if f.Status != "start" { // a large upload that isn't finished is no version yet
				all = append(all, versionOf(f))
			}
		}
		if len(seen) == known && p.nextName == name {
			return nil, fmt.Errorf("%w: that of the versions of %q has no end", store.ErrListing, name)
		}
		next = p
	}
	return all, nil
}

// removeVersion deletes a version, and reports whether this request did it. B2 reports so to
// one of all requests that delete a version.
func (s *Store) removeVersion(ctx context.Context, name string, v version) (removed bool, err error) {
	_, err = call(ctx, s, name, "deleteFiles", func(ctx context.Context, in *session) (struct{}, error) {
		return struct{}{}, in.bucket.File(v.id, name).DeleteFileVersion(ctx)
	})
	if errors.Is(err, errNoVersion) {
		return false, nil
	}
	return err == nil, err
}

// hide makes a name invisible, and keeps its versions.
func (s *Store) hide(ctx context.Context, name string) error {
	_, err := call(ctx, s, name, "writeFiles", func(ctx context.Context, in *session) (*base.File, error) {
		return in.bucket.HideFile(ctx, name)
	})
	if errors.Is(err, errHidden) || errors.Is(err, errNoVersion) {
		return nil
	}
	return err
}

// mayRemove reports whether the key can delete versions.
func (s *Store) mayRemove(ctx context.Context) (bool, error) {
	in, err := s.session(ctx, nil)
	return err == nil && in.may("deleteFiles"), err
}
