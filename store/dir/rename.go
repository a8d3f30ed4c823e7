package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/repolock/repolock/store"
)

// commit moves a temporary file to its place if the condition is met. It is the one atomic
// step of a Put.
func (w *write) commit(ctx context.Context, d *directory, temp string) error {
	switch {
	case w.opts.IfAbsent && w.opts.IfMatch != "":
		return store.ErrPrecondition // no object meets both
	case w.opts.IfAbsent:
		return link(d, temp, w.name)
	case w.opts.IfMatch == "" && w.creates(d):
		if err := link(d, temp, w.name); !errors.Is(err, store.ErrPrecondition) && !errors.Is(err, store.ErrConditionUnsupported) {
			return err
		}
	}
	unlock, err := w.lock(ctx, w.root, d, w.name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := w.matches(ctx, d, w.name, w.opts.IfMatch); err != nil {
		return err
	}
	if err := w.move(d, temp, w.name); err != nil {
		return replaced(d, w.name, err)
	}
	return nil
}

// creates reports whether a Put needs no flock, because there is no file that it replaces. Where the flock of
// the whole directory is taken for each file, a rename costs less than a link.
func (w *write) creates(d *directory) bool {
	if !w.local {
		return false // nor is a look worth its round trip there
	}
	_, err := d.Lstat(w.name)
	return errors.Is(err, fs.ErrNotExist)
}

// matches returns ErrPrecondition unless the file has this ETag, or etag is "".
func (s *Store) matches(ctx context.Context, d *directory, name, etag string) error {
	if etag == "" {
		return nil
	}
	switch _, now, err := s.inspect(ctx, d, name, maxHashed); {
	case absent(err):
		return store.ErrPrecondition
	case err != nil && !errors.Is(err, errIrregular) && !errors.Is(err, fs.ErrPermission):
		return err
	case now.ETag != etag:
		return store.ErrPrecondition
	}
	return nil
}

// link links the temporary file to its name if that doesn't exist. It replaces nothing, and
// so needs no flock: link(2) itself is the test.
func link(d *directory, temp, name string) error {
	if err := d.Link(temp, name); err != nil && !linked(d, temp, name) {
		if isOneOf(err, noLinks) {
			return renameNoReplace(d, temp, name)
		}
		return taken(d, name, err)
	}
	// If the second name outlives this process it is removed later.
	_ = d.Remove(temp)
	return nil
}

// linked reports whether the link was made although the call failed: an NFS client repeats
// a request whose answer was lost.
func linked(d *directory, temp, name string) bool {
	a, err1 := d.Lstat(temp)
	b, err2 := d.Lstat(name)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// taken returns the error of a link whose name might exist already.
func taken(d *directory, name string, err error) error {
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return replaced(d, name, store.ErrPrecondition)
}

// replaced returns the error of a rename or link: ErrIrregular if a directory has the name,
// or err.
func replaced(d *directory, name string, err error) error {
	if info, lerr := d.Lstat(name); lerr == nil && info.IsDir() {
		return fmt.Errorf("%w: %q is a directory", store.ErrIrregular, d.full(name))
	}
	return err
}
