package b2

import (
	"context"
	"errors"
	"slices"

	"github.com/repolock/repolock/store"
)

// claim is a replacement: a version that was put to replace another.
type claim struct {
	put      version
	replaces string // its ID
}

// replace uploads a version, and then looks whether it covers the one that it
// was to replace. If it covers anything else, or nothing, the object was deleted
// or replaced in between, and what was put is taken back.
//
// The look may fail where the upload didn't. Then the claim is owed, and settled
// before the version is itself replaced.
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

// settle returns nil if the version that was put is directly above the one that
// it replaces; then it removes what it covers, and remembers it. Else it takes it back, and
// returns ErrPrecondition.
//
// A deletion under way might have listed the versions before ours existed. It deletes the
// replaced version too, and B2 reports to only one of the two that it did. If it isn't us,
// the object was deleted before it was replaced. If it is, the other deletes ours as well.
func (s *Store) settle(ctx context.Context, name string, c claim) error {
	versions, err := s.versions(ctx, name)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(versions, func(v version) bool { return v.id == c.put.id })
	if at < 0 {
		s.forget(name)
		return store.ErrPrecondition // deleted since
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
		// One that can't be removed stays, covered, until the next time.
		removed, err := s.removeVersion(ctx, name, below[i])
		if i == 0 && err == nil && !removed {
			return s.takeBack(ctx, name, versions[:at+1], at, may)
		}
	}
	s.remember(name, c.put)
	return nil
}

// takeBack undoes what was put, and returns ErrPrecondition once it is. Where
// versions can't be removed, what was below is put on top again: a hide marker,
// or a copy.
func (s *Store) takeBack(ctx context.Context, name string, versions []version, at int, may bool) error {
	var err error
	if may {
		if _, err = s.removeVersion(ctx, name, versions[at]); errors.Is(err, store.ErrPermission) {
			may = false
		}
	}
	if !may {
		switch below := versions[at+1:]; {
		case at > 0: // covered already
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

// copyVersion makes a version the newest.
func (s *Store) copyVersion(ctx context.Context, name string, v version) error {
	_, err := call(ctx, s, name, "writeFiles", func(ctx context.Context, in *session) (struct{}, error) {
		return struct{}{}, s.post(ctx, in, "b2_copy_file", map[string]any{"sourceFileId": v.id, "fileName": name}, nil)
	})
	if errors.Is(err, errNoObject) {
		return s.hide(ctx, name) // it was deleted since
	}
	return err
}
