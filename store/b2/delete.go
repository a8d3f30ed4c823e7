package b2

import (
	"context"
	"errors"
	"fmt"

	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
)

// Delete removes all versions of an object, or hides it if the application key doesn't
// permit to delete. It is one request to list the versions, and one for each of them.
func (s *Store) Delete(ctx context.Context, key string) error {
	return failed("delete", key, s.delete(ctx, key))
}

// maxRounds is the number of times that a deletion follows a replacement of its object.
// After as many, others have deleted the object as often.
const maxRounds = 3

func (s *Store) delete(ctx context.Context, key string) error {
	name, err := s.name(ctx, key)
	if errors.Is(err, store.ErrInvalidKey) {
		return fmt.Errorf("%w: only Backblaze's own tools can delete it, as: b2 rm --versions %s", err, text.ShellWord("b2://"+s.bucket+"/"+s.prefix+key))
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

// removeAll deletes all versions that are listed, the newest last, because it covers the
// others until they are gone. A version that is put meanwhile stays, unless it replaces the
// newest one of the list: then another client has deleted that one before us, and done is
// false.
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

// hideInstead hides an object whose versions can't be removed, for this reason.
func (s *Store) hideInstead(ctx context.Context, name string, reason error) error {
	err := s.hide(ctx, name)
	if errors.Is(err, store.ErrPermission) {
		return fmt.Errorf("%w, nor can it be hidden: %w", reason, err)
	}
	return err
}
