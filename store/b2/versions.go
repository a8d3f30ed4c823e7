package b2

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
)

// version is one version of a name.
type version struct {
	id   string
	time time.Time
	size int64
	// hides is set for a hide marker, and for any other version that readers don't see.
	hides bool
}

// object returns a version as an object.
func (v version) object(key string) store.Object {
	return store.Object{Key: key, ETag: v.id, Size: v.size, ModTime: v.time}
}

func versionOf(f *base.File) version {
	return version{id: f.ID, time: f.Timestamp, size: f.Size, hides: f.Status != "upload"}
}

// pageSize is the largest page that B2 bills as one transaction.
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
				return all, nil // a longer name, which comes after all versions of this one
			}
			seen[f.ID] = true
			if f.Status != "start" { // else a large upload is under way, and no version yet
				all = append(all, versionOf(f))
			}
		}
		if len(seen) == known && p.nextName == name {
			return nil, fmt.Errorf("%w: the listing of the versions of %q has no end", store.ErrListing, name)
		}
		next = p
	}
	return all, nil
}

// removeVersion deletes a version, and reports whether this request did it. If several requests delete a version, B2
// reports success to one of them.
func (s *Store) removeVersion(ctx context.Context, name string, v version) (removed bool, err error) {
	_, err = call(ctx, s, name, "deleteFiles", func(ctx context.Context, in *session) (struct{}, error) {
		return struct{}{}, in.bucket.File(v.id, name).DeleteFileVersion(ctx)
	})
	if errors.Is(err, errNoVersion) {
		return false, nil
	}
	return err == nil, err
}

// hide hides a name from readers, and keeps its versions.
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

// Delete removes all versions of an object: one request lists them, and one more deletes each. If the application key
// can't delete, Delete hides the object.
func (s *Store) Delete(ctx context.Context, key string) error {
	return failed("delete", key, s.delete(ctx, key))
}

// maxRounds bounds how often a deletion lists the versions again because the object was replaced. Before each
// repetition, another client has deleted the newest listed version first.
const maxRounds = 3

func (s *Store) delete(ctx context.Context, key string) error {
	name, err := s.name(ctx, key)
	if errors.Is(err, store.ErrInvalidKey) {
		return fmt.Errorf("%w: only Backblaze's own tools can delete it, for example: b2 rm --versions %s", err, text.ShellWord("b2://"+s.bucket+"/"+s.prefix+key))
	}
	if err != nil {
		return err
	}
	may, err := s.mayRemove(ctx)
	if err != nil {
		return err
	}
	defer s.forget(name)
	if !may {
		return s.hideInstead(ctx, name, lacks("deleteFiles"))
	}
	for range maxRounds {
		done, err := s.removeAll(ctx, name)
		if errors.Is(err, store.ErrPermission) {
			return s.hideInstead(ctx, name, err)
		}
		if done || err != nil {
			return err
		}
	}
	return nil
}

// removeAll deletes all listed versions, the newest last, because the newest hides the others until they are gone. A
// version that is put meanwhile stays. If it replaces the newest listed version, its Put has deleted that one before
// us, and done is false.
func (s *Store) removeAll(ctx context.Context, name string) (done bool, err error) {
	versions, err := s.versions(ctx, name)
	if err != nil {
		return false, err
	}
	done = true
	for i := len(versions) - 1; i >= 0; i-- {
		if done, err = s.removeVersion(ctx, name, versions[i]); err != nil {
			return false, err
		}
	}
	return done, nil
}

// hideInstead hides an object whose versions can't be removed. reason is why they can't.
func (s *Store) hideInstead(ctx context.Context, name string, reason error) error {
	err := s.hide(ctx, name)
	if errors.Is(err, store.ErrPermission) {
		return fmt.Errorf("%w, nor can it be hidden: %w", reason, err)
	}
	return err
}
