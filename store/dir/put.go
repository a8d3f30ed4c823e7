package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/repolock/repolock/store"
)

// maxTries is how often a Put makes its directory again that another process
// has just removed, being empty.
const maxTries = 100

// Put writes the body to a temporary file beside its place, and then moves it
// there in one step. On a file system that isn't known to be local it is
// always durable.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	obj, err := s.put(ctx, key, body, opts)
	if err != nil {
		return store.Object{}, failed("put", key, err)
	}
	obj.Key = key
	return obj, nil
}

func (s *Store) put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if err := check(ctx, key); err != nil {
		return store.Object{}, err
	}
	if opts.IfMatch != "" && !s.flock {
		return store.Object{}, store.ErrConditionUnsupported
	}
	root, err := s.open()
	if err != nil {
		return store.Object{}, err
	}
	defer root.Close()
	w := write{Store: s, root: root, body: body, opts: opts, durable: opts.Durable || !s.local}
	w.dir, w.name = split(key)
	for range maxTries {
		var obj store.Object
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
			return store.Object{}, err
		}
	}
	return store.Object{}, err
}

// write is one Put under way.
type write struct {
	*Store
	root      *os.Root
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
		return obj, err // the disk may have been slow
	}
	if err := w.commit(ctx, d, temp); err != nil {
		return obj, err
	}
	if w.durable {
		if err := syncUp(w.root, w.dir); err != nil {
			return obj, err
		}
	}
	return store.Object{ETag: etag(w.body, info), Size: info.Size(), ModTime: info.ModTime()}, nil
}

// fill writes the body to a new file. What the file is then, rename and link
// leave as it is, so this is also what a List will find.
func (w *write) fill(d *os.Root, temp string) (fs.FileInfo, error) {
	folder, err := d.Stat(".")
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
	return info, cmp.Or(err, err1, f.Close())
}
