package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/repolock/repolock/store"
)

// Delete removes the file, link or pipe, and then the directories above it that are empty.
// It refuses a key that isn't valid, unless List shows it: then Delete removes it too, and
// also a folder that is still empty.
func (s *Store) Delete(ctx context.Context, key string) error {
	return failed("delete", key, s.delete(ctx, key, ""))
}

// DeleteIfMatch is Delete if the file has this ETag. The condition binds the programs that
// take the directory's flock, as PutOptions.IfMatch does.
func (s *Store) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if !s.flock {
		return failed("delete", key, store.ErrConditionUnsupported)
	}
	return failed("delete", key, s.delete(ctx, key, etag))
}

func (s *Store) delete(ctx context.Context, key, ifMatch string) error {
	invalid := check(ctx, key)
	if invalid != nil && (ctx.Err() != nil || !listable(key)) {
		return invalid
	}
	root, err := s.open()
	if err != nil {
		return err
	}
	defer root.Close()
	path, folder := strings.CutSuffix(key, "/")
	dir, name := split(path)
	if folder {
		err = removeFolder(root, dir, name)
	} else {
		err = s.remove(ctx, root, dir, name, ifMatch)
	}
	switch {
	case absent(err) && invalid != nil:
		return invalid
	case folder && errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: the folder isn't empty", store.ErrInvalidKey)
	case err != nil && !absent(err):
		return err
	}
	s.prune(root, dir, s.now())
	return nil
}

// removeFolder removes a directory that is empty, and no other.
func removeFolder(root *directory, dir, name string) error {
	d, err := openDir(root, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return rmdir(d, name)
}

// remove removes a file, a link or a pipe.
func (s *Store) remove(ctx context.Context, root *directory, dir, name, ifMatch string) error {
	d, err := openDir(root, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	unlock, err := s.lock(ctx, root, d, name)
	if err != nil {
		return err
	}
	defer unlock()
	info, err := d.Lstat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fs.ErrNotExist // no object
	}
	if err := s.matches(ctx, d, name, ifMatch); err != nil {
		return err
	}
	return d.Remove(name)
}
