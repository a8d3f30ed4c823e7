package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// Delete removes the file, link or pipe, and then the empty directories above it. It also removes an invalid key or an
// empty folder that List shows. It refuses any other invalid key.
func (s *Store) Delete(ctx context.Context, key string) error {
	return failed("delete", key, s.delete(ctx, key, ""))
}

// DeleteIfMatch deletes the file if it has this ETag. The condition holds only against programs that take the
// directory's flock, as with PutOptions.IfMatch.
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
	dir, name := files.Split(path)
	d, err := openDir(root, dir)
	if err == nil {
		defer d.Close()
		if folder {
			err = rmdir(d, name)
		} else {
			err = s.remove(ctx, root, d, name, ifMatch)
		}
	}
	switch {
	case absent(err) && invalid != nil:
		return invalid
	case folder && errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: the folder isn't empty", store.ErrInvalidKey)
	case err != nil && !absent(err):
		return err
	}
	s.prune(root, d, dir, s.now())
	return nil
}

// remove removes a file, a link or a pipe.
func (s *Store) remove(ctx context.Context, root, d *directory, name, ifMatch string) error {
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
		return errFolder
	}
	if ifMatch == "" {
		return d.Remove(name)
	}
	if err := s.matches(ctx, d, name, ifMatch); err != nil {
		return err
	}
	return s.removeMatching(ctx, d, name, ifMatch)
}

// removeMatching removes a file that has this ETag. It moves the file away first, and compares it again. If a program
// that takes no flock (an SFTP server) has replaced the file meanwhile, it gives that program's file its name back.
func (s *Store) removeMatching(ctx context.Context, d *directory, name, ifMatch string) error {
	temp := files.NewTemp()
	if err := s.move(d.Rename, name, temp); err != nil {
		return err
	}
	if err := s.matches(ctx, d, temp, ifMatch); err != nil {
		if lerr := link(d, temp, name); lerr != nil && !errors.Is(lerr, store.ErrPrecondition) {
			return lerr
		}
		_ = d.Remove(temp) // if another file has the name by now
		return err
	}
	return d.Remove(temp)
}

// prune removes the empty directories that files.Prunes selects, from dir upwards, and then old temporary files. at is
// the open dir, or nil if dir can't be opened. Another process that needs a directory makes it again. If a removal
// fails, a later request repeats it.
func (s *Store) prune(root, at *directory, dir string, now time.Time) {
	for s.prunes(dir) {
		parent, name := files.Split(dir)
		d, err := openDir(root, parent)
		if err != nil {
			return
		}
		err = rmdir(d, name)
		d.Close()
		if err != nil {
			break // most likely it isn't empty
		}
		dir, at = parent, nil
	}
	if at == nil {
		var err error
		if at, err = openDir(root, dir); err != nil {
			return
		}
		defer at.Close()
	}
	sweep(at, now)
}

// prunes reports whether files.Prunes selects a directory of this store.
func (s *Store) prunes(dir string) bool {
	_, mine := made.Load(s.path + "/" + dir)
	return files.Prunes(dir, mine)
}

// sweep removes the temporary files that dead processes have left in a directory.
func sweep(d *directory, now time.Time) {
	var temps []string
	for name := range d.names() {
		if files.IsTemp(name) {
			temps = append(temps, name)
		}
	}
	for _, name := range temps {
		switch info, err := d.Lstat(name); {
		case err != nil || now.Sub(info.ModTime()) <= files.Abandoned:
		case info.Mode().IsRegular():
			_ = d.Remove(name)
		case info.IsDir():
			_ = rmdir(d, name) // a process died before it could name the directory
		}
	}
}
