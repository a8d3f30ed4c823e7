package b2

import (
	"context"
	"errors"
	"slices"

	"github.com/repolock/repolock/store"
)

// claim is a version that was put, and the version that it was to replace.
type claim struct {
	put      version
	replaces string // an ID
}

// replace uploads a version, and then looks which version it covers. If that isn't the one to
// replace, another client has deleted or replaced the object meanwhile, and replace takes its own
// version back.
//
// If the look fails, the claim stays owed. The next replace of this version settles it first.
func (s *Store) replace(ctx context.Context, name string, body []byte, etag string) (version, error) {
	s.mu.Lock()
	owed, ok := s.owed[name]
	s.mu.Unlock()
	if ok && owed.put.id == etag {
		if err := s.settle(ctx, name, owed); err != nil {
			return version{}, err
		}
	}
	v, err := s.upload(ctx, name, body)
	if err != nil {
		return version{}, err
	}
	c := claim{v, etag}
	s.mu.Lock()
	s.owed[name] = c
	s.mu.Unlock()
	return v, s.settle(ctx, name, c)
}

// settle looks whether the new version is directly above the one that it replaces. If it is, settle
// remembers the new version, and removes the versions below it. If not, settle takes the new version
// back, and returns ErrPrecondition.
//
// A deletion under way might have listed the versions before ours existed. It deletes the replaced
// version too, and B2 reports success to only one of the two. If that is the deletion, the object
// was deleted before it was replaced. If that is us, the deletion also deletes our version.
func (s *Store) settle(ctx context.Context, name string, c claim) error {
	versions, err := s.versions(ctx, name)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(versions, func(v version) bool { return v.id == c.put.id })
	if at < 0 {
		s.forget(name)
		return store.ErrPrecondition // another client has deleted it
	}
	may, err := s.mayRemove(ctx)
	if err != nil {
		return err
	}
	below := versions[at+1:]
	if len(below) == 0 || below[0].id != c.replaces {
		return s.takeBack(ctx, name, versions, at, may)
	}
	for i := len(below) - 1; may && i >= 0; i-- {
		// A version that can't be removed stays covered. The next settle removes it.
		removed, err := s.removeVersion(ctx, name, below[i])
		if i == 0 && err == nil && !removed {
			return s.takeBack(ctx, name, versions[:at+1], at, may)
		}
	}
	s.remember(name, c.put)
	return nil
}

// takeBack removes the version at an index of versions, and then returns ErrPrecondition. If it can't
// remove versions, it covers this one with a hide marker, or with a copy of the version below.
func (s *Store) takeBack(ctx context.Context, name string, versions []version, at int, may bool) error {
	var err error
	if may {
		if _, err = s.removeVersion(ctx, name, versions[at]); errors.Is(err, store.ErrPermission) {
			may = false
		}
	}
	if !may {
		switch below := versions[at+1:]; {
		case at > 0: // another client's version covers it already
			err = nil
		case len(below) == 0 || below[0].hides:
			err = s.hide(ctx, name)
		default:
			err = s.copyVersion(ctx, name, below[0])
		}
	}
	if err != nil {
		return err
	}
	s.forget(name)
	return store.ErrPrecondition
}

// copyVersion copies a version, so that the copy is the newest one.
func (s *Store) copyVersion(ctx context.Context, name string, v version) error {
	_, err := call(ctx, s, name, "writeFiles", func(ctx context.Context, in *session) (struct{}, error) {
		return struct{}{}, s.post(ctx, in, "b2_copy_file", map[string]any{"sourceFileId": v.id, "fileName": name}, nil)
	})
	if errors.Is(err, errNoObject) {
		return s.hide(ctx, name) // another client has deleted it meanwhile
	}
	return err
}
