package dir

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// maxTries is the number of times that a Put makes its directory again after another process
// has removed it because it was empty.
const maxTries = 100

// Put writes the body to a temporary file beside its place, and then moves it there in one
// step. Unless the file system is known to be local, it is always durable.
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
	w.dir, w.name = split(key)
	for range maxTries {
		obj, err = w.try(ctx)
		if errors.Is(err, errNotDir) {
			err = fmt.Errorf("%w: %w", store.ErrIrregular, err)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return obj, err
		}
		// A directory was removed before there was anything in it: make it
		// again, but never the root.
		if err := cmp.Or(ctx.Err(), s.gone(root)); err != nil {
			return obj, err
		}
	}
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Doing == inability("write into", s.path) {
		// No process removes the root, and it isn't gone.
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
}

func (w *write) try(ctx context.Context) (obj store.Object, err error) {
	d, err := w.makeDir(w.root, w.dir)
	if err != nil {
		return obj, err
	}
	defer d.Close()
	temp := newTemp()
	defer func() {
		if err != nil {
			// Nothing is left behind. These may fail, on a disk that broke: then
			// the temporary file is removed later, as a dead process's is.
			_ = d.Remove(temp)
			w.prune(w.root, w.dir, w.now())
		}
	}()
	info, err := w.fill(d, temp)
	if err != nil {
		return obj, err
	}
	if err := ctx.Err(); err != nil {
		return obj, err // the disk might have been slow
	}
	if err := w.commit(ctx, d, temp); err != nil {
		return obj, err
	}
	if w.durable {
		if err := syncUp(w.root, w.dir); err != nil {
			return obj, err
		}
	}
	return store.Object{Key: w.key, ETag: etag(w.body, info), Size: info.Size(), ModTime: info.ModTime()}, nil
}

// fill writes the body to a new file, and returns its attributes. Rename and link don't
// change them, so that List will show the same.
func (w *write) fill(d *directory, temp string) (fs.FileInfo, error) {
	folder, err := d.Lstat(".")
	if err != nil {
		return nil, err
	}
	f, err := d.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, w.fileMode)
	if err != nil {
		return nil, err
	}
	own(f, folder, w.fileMode)
	_, err = f.Write(w.body)
	if err == nil && w.durable {
		err = f.Sync()
	}
	info, err1 := f.Stat()
	return info, cant("write into", d.path, cmp.Or(err, err1, f.Close()))
}

// syncUp makes a directory's entries durable, and its own entry in the one
// above, up to the root: the process that made those directories might not have synced them.
func syncUp(root *directory, dir string) error {
	for {
		if err := syncDir(root, cmp.Or(dir, ".")); err != nil || dir == "" {
			return err
		}
		dir, _ = split(dir)
	}
}

const (
	tempPrefix = ".repolock-"
	tempSuffix = ".tmp"
)

// newTemp returns a name that no other process and no object has.
func newTemp() string { return tempPrefix + rand.Text() + tempSuffix }

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}
