package dir

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/repolock/repolock/store"
)

// maxHashed is up to which size a body is read for its ETag. A lock's is a
// hundredth of it.
const maxHashed = 64 << 10

// errIrregular is what a link, a pipe or a device in place of a file gives.
var errIrregular = fmt.Errorf("%w: not a regular file", store.ErrIrregular)

// Get reads the file.
func (s *Store) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	body, obj, err := s.get(ctx, key, limit)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, store.Object{}, failed("get", key, err)
	}
	obj.Key = key
	return body, obj, nil
}

func (s *Store) get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	if err := check(ctx, key); err != nil {
		return nil, store.Object{}, err
	}
	root, err := s.open()
	if err != nil {
		return nil, store.Object{}, err
	}
	defer root.Close()
	dir, name := split(key)
	d, err := openDir(root, dir)
	if err != nil {
		return nil, store.Object{}, err
	}
	defer d.Close()
	body, obj, err := inspect(d, name, limit)
	if err == nil && obj.Size > limit {
		err = store.ErrTooLarge
	}
	return body, obj, cmp.Or(err, ctx.Err())
}

// inspect describes a file, and reads its body unless it is larger than limit.
// Everything that it tells is of one version: a file that was opened stays what
// it is when another takes its name.
//
// What can't be opened is described nevertheless, with the error. A directory
// is no object: it gives fs.ErrNotExist. What can't even be described has no
// ETag.
func inspect(d *os.Root, name string, limit int64) ([]byte, store.Object, error) {
	info, err := d.Lstat(name)
	if err != nil {
		return nil, store.Object{}, err
	}
	if info.IsDir() {
		return nil, store.Object{}, &fs.PathError{Op: "open file", Path: name, Err: fs.ErrNotExist}
	}
	described := store.Object{ETag: statTag(info), Size: info.Size(), ModTime: info.ModTime()}
	if !info.Mode().IsRegular() {
		described.Size = -1
		return nil, described, fmt.Errorf("%w but a %s", errIrregular, kind(info.Mode()))
	}
	// Should a pipe have taken its place by now, opening it doesn't wait for a
	// writer.
	f, err := d.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, described, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, described, err
	}
	if !info.Mode().IsRegular() {
		described.Size = -1
		return nil, described, errIrregular
	}
	obj := store.Object{ETag: statTag(info), Size: info.Size(), ModTime: info.ModTime()}
	if obj.Size > max(limit, maxHashed) {
		return nil, obj, nil
	}
	body, err := io.ReadAll(io.LimitReader(f, max(limit, maxHashed)+1))
	if err != nil {
		return nil, obj, err
	}
	obj.Size = int64(len(body)) // another program may write to the file where it is
	obj.ETag = etag(body, info)
	return body, obj, nil
}

// etag is a function of the body. It is not made of the file's inode and times:
// an inode's number is used again at once, and mtime moves in ticks of up to
// 10 ms, so that two versions within a tick could have the same.
func etag(body []byte, info fs.FileInfo) string {
	if len(body) > maxHashed {
		return statTag(info)
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:16])
}

// statTag stands in for the ETag of what is too large to be read for a listing,
// or can't be. It is as good as mtime and inode are, and marked with "s-".
func statTag(info fs.FileInfo) string {
	return fmt.Sprintf("s-%x-%x-%x", info.Size(), info.ModTime().UnixNano(), inode(info))
}
