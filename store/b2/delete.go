package b2

import (
	"context"
	"errors"
	"fmt"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/web"
)

// Delete removes all versions of an object, or hides it where the application key
// may not delete.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.delete(ctx, key); err != nil {
		return failed("delete", key, err)
	}
	return nil
}

// maxRounds is how often a deletion goes after what has replaced an object while
// it ran. After that the object was deleted as often by others.
const maxRounds = 3

func (s *Store) delete(ctx context.Context, key string) error {
	name, err := s.name(ctx, key)
	if errors.Is(err, store.ErrInvalidKey) {
		return fmt.Errorf("%w: only Backblaze's own tools can delete it, as: b2 rm --versions %s", err, web.Quote("b2://"+s.bucket+"/"+s.prefix+key))
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

// removeAll deletes all versions that are listed, the newest last: it covers the
// others until they are gone. What is put while it runs isn't its business,
// unless it has replaced what was to be deleted: whoever did that has deleted the
// newest version before us, as another deletion would have.
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

// hideInstead hides an object whose versions can't be removed for a reason.
func (s *Store) hideInstead(ctx context.Context, name string, reason error) error {
	err := s.hide(ctx, name)
	if errors.Is(err, store.ErrPermission) {
		return fmt.Errorf("%w, nor can it be hidden: %w", reason, err)
	}
	return err
}
