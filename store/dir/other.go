package dir

import (
	"context"
	"strings"

	"github.com/repolock/repolock/store/internal/files"
)

// HasOther reads the names in the directories, one after another, until it finds a file whose key doesn't begin with
// the prefix. It opens no file, and takes no flock. It can miss a file that is renamed meanwhile.
func (s *Store) HasOther(ctx context.Context, prefix string) (found bool, err error) {
	defer func() { err = failed("list", "", err) }()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	root, err := s.open()
	if err != nil {
		return false, err
	}
	defer root.Close()
	return hasOther(ctx, root, "", prefix)
}

// hasOther is HasOther for one directory and the directories below it. The keys in it begin with at.
func hasOther(ctx context.Context, d *directory, at, prefix string) (bool, error) {
	for name, err := range d.names() {
		if err != nil {
			return false, err
		}
		if files.IsTemp(name) || strings.HasPrefix(at+name, prefix) {
			continue
		}
		if found, err := isOther(ctx, d, name, at, prefix); found || err != nil {
			return found, err
		}
	}
	return false, ctx.Err()
}

// isOther reports whether a name in a directory belongs to an object, or to a directory that has one, outside the
// prefix. It returns false if the name is gone.
func isOther(ctx context.Context, d *directory, name, at, prefix string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	info, err := d.Lstat(name)
	if err == nil && !info.IsDir() {
		return true, nil
	}
	if err == nil {
		var below *directory
		if below, err = d.OpenRoot(name); err == nil {
			defer below.Close()
			return hasOther(ctx, below, at+name+"/", prefix)
		}
	}
	if absent(err) {
		return false, nil
	}
	return false, err
}
