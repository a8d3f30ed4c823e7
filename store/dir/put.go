package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// maxTries is how often a Put makes its directory again after another process has removed the empty directory. It is
// also how often lockFile tries again after another client has replaced the file.
const maxTries = 100

// Put writes the body to a temporary file beside its place, and then moves it there in one step. On a file system that
// isn't known to be local, Put is always durable.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (obj store.Object, err error) {
	defer func() { err = failed("put", key, err) }()
	if err := check(ctx, key); err != nil {
		return obj, err
	}
	if opts.IfMatch != "" && !s.flock {
		return obj, store.ErrConditionUnsupported
	}
	root, err := s.open()
	if err != nil {
		return obj, err
	}
	defer root.Close()
	w := write{Store: s, root: root, key: key, body: body, opts: opts, durable: opts.Durable || !s.local}
	w.dir, w.name = files.Split(key)
	for range maxTries {
		obj, err = w.try(ctx)
		if errors.Is(err, errNotDir) {
			err = fmt.Errorf("%w: %w", store.ErrIrregular, err)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return obj, err
		}
		// Another process has removed the empty directory. Make it again, but never the root.
		if err := cmp.Or(ctx.Err(), s.gone(root)); err != nil {
			return obj, err
		}
	}
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Doing == inability("write into", s.path) {
		// The root exists, so its file system has refused the new file.
		err = fault.While(e.Doing, fmt.Errorf("its file system takes no new files: %w", e.Err))
	}
	return obj, err
}

// write is one Put under way.
type write struct {
	*Store
	root      *directory
	key       string
	dir, name string
	body      []byte
	opts      store.PutOptions
	durable   bool
	flushless bool   // the file system refuses every fsync
	etag      string // of the body in its temporary file
}

func (w *write) try(ctx context.Context) (obj store.Object, err error) {
	d, err := w.makeDir(w.root, w.dir)
	if err != nil {
		return obj, err
	}
	defer d.Close()
	temp := files.NewTemp()
	defer func() {
		if err != nil {
			// If the disk broke and these calls fail too, a later Delete removes the temporary file.
			_ = d.Remove(temp)
			w.prune(w.root, d, w.dir, w.now())
		}
	}()
	info, err := w.fill(d, temp)
	if err != nil {
		return obj, err
	}
	if err := ctx.Err(); err != nil {
		return obj, err // the disk might have been slow
	}
	w.etag = etag(w.body, info)
	if err := w.commit(ctx, d, temp); err != nil {
		return obj, err
	}
	if w.durable && !w.flushless {
		if err := w.syncUp(w.root, w.dir); err != nil {
			return obj, err
		}
	}
	return store.Object{Key: w.key, ETag: w.etag, Size: info.Size(), ModTime: info.ModTime()}, nil
}

// fill writes the body to a new file, and returns the file's attributes. A later rename or link doesn't change the
// attributes that List shows.
func (w *write) fill(d *directory, temp string) (fs.FileInfo, error) {
	folder, err := d.Lstat(".")
	if err != nil {
		return nil, err
	}
	f, err := d.Create(temp, w.fileMode)
	if err != nil {
		return nil, err
	}
	own(f, folder, w.fileMode)
	_, err = f.Write(w.body)
	err = cant("write into", d.path, err)
	if err == nil && w.durable {
		err = w.flush(d, f)
	}
	info, err1 := f.Stat()
	return info, cmp.Or(err, cant("write into", d.path, cmp.Or(err1, f.Close())))
}

// flush flushes the temporary file. If the file system refuses to flush even an empty file, it has no fsync, whatever its
// error is. Then only a put that must be durable fails: a crash can lose the body of any other put, as on a local file
// system.
func (w *write) flush(d *directory, f *os.File) error {
	err := w.sync(f)
	if err == nil {
		return nil
	}
	if !w.opts.Durable {
		name := files.NewTemp()
		empty, cerr := d.Create(name, w.fileMode)
		if cerr != nil {
			return cerr
		}
		w.flushless = w.sync(empty) != nil
		if err := cmp.Or(empty.Close(), d.Remove(name)); err != nil || w.flushless {
			return err
		}
	}
	return cant("flush (fsync) a file in", d.path, err)
}

// syncUp makes the entries of a directory durable, and the entries of each directory above it up to the root. Another
// process might have made these directories without syncing them yet.
func (s *Store) syncUp(root *directory, dir string) error {
	for {
		if err := s.syncDir(root, cmp.Or(dir, ".")); err != nil || dir == "" {
			return err
		}
		dir, _ = files.Split(dir)
	}
}

// commit moves a temporary file to its place if the condition is met. It is the one atomic step of a Put.
func (w *write) commit(ctx context.Context, d *directory, temp string) error {
	switch {
	case w.opts.IfAbsent && w.opts.IfMatch != "":
		return store.ErrPrecondition // no object meets both conditions
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
	if w.opts.IfMatch != "" {
		return w.exchange(ctx, d, temp)
	}
	return w.rename(d, temp)
}

func (w *write) rename(d *directory, temp string) error {
	if err := w.move(d.Rename, temp, w.name); err != nil {
		return replaced(d, w.name, err)
	}
	return nil
}

// exchange makes a temporary file and the file of the name change places. Unlike a rename, that fails if the name is
// gone. So a program that takes no flock (an SFTP server) can delete the file at any time, and it stays deleted.
//
// If such a program has replaced the file since its comparison, exchange puts that program's file back, and returns
// ErrPrecondition. If the file system can't exchange files, exchange renames.
func (w *write) exchange(ctx context.Context, d *directory, temp string) error {
	goes, comes := w.opts.IfMatch, w.etag // the ETags of the file that must lose the name, and of the one that gets it
	for n := range maxTries {
		switch err := w.move(d.Exchange, temp, w.name); {
		case errors.Is(err, fs.ErrNotExist):
			return store.ErrPrecondition
		case n == 0 && isOneOf(err, noLinks):
			return w.rename(d, temp)
		case err != nil:
			return err
		}
		_, gone, err := w.inspect(ctx, d, temp, files.MaxHashed)
		switch {
		case gone.ETag == goes && n > 0:
			return store.ErrPrecondition
		case gone.ETag == goes, errors.Is(err, fs.ErrNotExist): // some file systems ignore the flag, and have renamed it
			_ = d.Remove(temp) // if this fails, a later Delete removes it
			return nil
		case gone.ETag == "" && !errors.Is(err, errFolder):
			return err
		}
		goes, comes = comes, gone.ETag
	}
	return store.ErrPrecondition
}

// creates reports whether the name is free, so that a Put without a condition can link its file. A link needs no flock.
// On a file system that isn't local, creates returns false, because a rename under the flock of the directory costs
// less than a look and a link.
func (w *write) creates(d *directory) bool {
	if !w.local {
		return false
	}
	_, err := d.root.Lstat(w.name) // the usual error needs no message
	return errors.Is(err, fs.ErrNotExist)
}

// link links the temporary file to its name if the name is free. It needs no flock, because link(2) replaces nothing.
func link(d *directory, temp, name string) error {
	if err := d.Link(temp, name); err != nil && !linked(d, temp, name) {
		if isOneOf(err, noLinks) {
			return renameNoReplace(d, temp, name)
		}
		return taken(d, name, err)
	}
	// If this fails, a later Delete removes the second name.
	_ = d.Remove(temp)
	return nil
}

// linked reports whether the link exists although the call failed. An NFS client repeats a request whose answer was
// lost.
func linked(d *directory, temp, name string) bool {
	a, err1 := d.Lstat(temp)
	b, err2 := d.Lstat(name)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// taken returns ErrPrecondition if err, the error of a link or rename, means that the name isn't free. Otherwise it
// returns err.
func taken(d *directory, name string, err error) error {
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return replaced(d, name, store.ErrPrecondition)
}

// replaced returns ErrIrregular if the name belongs to a directory, or else err.
func replaced(d *directory, name string, err error) error {
	if info, lerr := d.Lstat(name); lerr == nil && info.IsDir() {
		return fmt.Errorf("%w: %q is a directory", store.ErrIrregular, d.full(name))
	}
	return err
}
