package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// errIrregular is returned if there is a link, a pipe or a device in the place of a file.
var errIrregular = fmt.Errorf("%w: not a regular file", store.ErrIrregular)

// place is the key of a directory in a store.Sharing.
type place struct {
	s   *Store
	dir string
}

// Get reads a file of at most limit bytes.
func (s *Store) Get(ctx context.Context, key string, limit int64) (body []byte, obj store.Object, err error) {
	defer func() {
		if absent(err) {
			err = store.ErrNotFound
		}
		if err = failed("get", key, err); err != nil {
			body, obj = nil, store.Object{}
		}
	}()
	if err := check(ctx, key); err != nil {
		return nil, obj, err
	}
	dir, name := files.Split(key)
	read := func(d *directory) (body []byte, obj store.Object, err error) {
		body, obj, err = s.inspect(ctx, d, name, limit)
		if err == nil && obj.Size > limit {
			err = store.ErrTooLarge
		}
		obj.Key = key
		return body, obj, cmp.Or(err, ctx.Err())
	}
	sharing, at := store.Shares(ctx), place{s, dir}
	if d, ok := sharing.Kept(at).(*directory); ok {
		if body, obj, err = read(d); err == nil {
			return body, obj, nil
		}
		// Another directory can have replaced it.
	}
	root, err := s.open()
	if err != nil {
		return nil, obj, err
	}
	defer root.Close()
	d, err := openDir(root, dir)
	if err != nil {
		return nil, obj, err
	}
	if !sharing.Keep(at, d) {
		defer d.Close()
	}
	return read(d)
}

// matches returns ErrPrecondition unless the file has this ETag. An empty etag matches any file.
func (s *Store) matches(ctx context.Context, d *directory, name, etag string) error {
	if etag == "" {
		return nil
	}
	switch _, now, err := s.inspect(ctx, d, name, files.MaxHashed); {
	case absent(err):
		return store.ErrPrecondition
	case err != nil && !errors.Is(err, errIrregular) && !errors.Is(err, fs.ErrPermission):
		return err
	case now.ETag != etag:
		return store.ErrPrecondition
	}
	return nil
}

// inspect returns a file's object, and its body unless it is larger than limit. Both are of one version, because an
// open file stays the same when another file is renamed over it.
//
// For a file that can't be opened, it returns both the object and an error. For a directory it returns errFolder. If it
// learns nothing about the file, the object has no ETag.
func (s *Store) inspect(ctx context.Context, d *directory, name string, limit int64) (body []byte, obj store.Object, err error) {
	err = s.find(ctx, d, name, func() error {
		if body, obj, err = lookAt(d, name, limit); errors.Is(err, fs.ErrNotExist) {
			obj = store.Object{}
		}
		return err
	})
	return body, obj, err
}

// lookAt is inspect without repetition.
func lookAt(d *directory, name string, limit int64) ([]byte, store.Object, error) {
	info, err := d.Lstat(name)
	if err != nil {
		return nil, store.Object{}, err
	}
	if info.IsDir() {
		return nil, store.Object{}, errFolder
	}
	if !info.Mode().IsRegular() {
		return nil, described(info), fmt.Errorf("%w but a %s", errIrregular, kind(info.Mode()))
	}
	f, err := d.Open(name)
	if err != nil {
		return nil, described(info), err
	}
	defer f.Close()
	return contents(d, name, f, info, limit)
}

// contents is lookAt for an open file. info has the attributes that the name had before.
func contents(d *directory, name string, f *os.File, info fs.FileInfo, limit int64) ([]byte, store.Object, error) {
	opened, err := f.Stat()
	if err != nil {
		return nil, described(info), d.unopened(name, err)
	}
	if !opened.Mode().IsRegular() {
		return nil, described(opened), errIrregular // another file has replaced it since the Lstat
	}
	if opened.Size() > max(limit, files.MaxHashed) {
		return nil, described(opened), nil
	}
	body, err := readAll(io.LimitReader(f, max(limit, files.MaxHashed)+1), opened.Size())
	if err != nil {
		return nil, described(opened), cant("read", filepath.Join(d.path, name), err)
	}
	// Another program can write to an open file, so the size must be the body's.
	return body, store.Object{ETag: etag(body, opened), Size: int64(len(body)), ModTime: opened.ModTime()}, nil
}

// readAll is io.ReadAll, but begins with a buffer of the expected size.
func readAll(r io.Reader, size int64) ([]byte, error) {
	body := make([]byte, size+1) // one byte more, to find the end
	n, err := io.ReadFull(r, body)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return body[:n], nil
	}
	if err != nil {
		return nil, err
	}
	more, err := io.ReadAll(r) // more bytes, if another program writes to the open file
	return append(body, more...), err
}

// described returns the object of a file whose body wasn't read.
func described(info fs.FileInfo) store.Object {
	size := info.Size()
	if !info.Mode().IsRegular() {
		size = -1
	}
	return store.Object{ETag: statTag(info), Size: size, ModTime: info.ModTime()}
}

// etag returns the ETag of a file with this body.
func etag(body []byte, info fs.FileInfo) string {
	if len(body) > files.MaxHashed {
		return statTag(info)
	}
	return files.ETag(body)
}

// statTag returns the ETag of a file that is too large, or can't be read. It begins with "s-", and changes if the size,
// the mtime or the inode changes.
func statTag(info fs.FileInfo) string {
	return fmt.Sprintf("s-%x-%x-%x", info.Size(), info.ModTime().UnixNano(), inode(info))
}
