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
	"path/filepath"

	"github.com/repolock/repolock/store"
)

// maxHashed is the size of the largest body that is read for its ETag. A lock's is a
// hundredth of it.
const maxHashed = 64 << 10

// errIrregular is the error for a link, a pipe or a device in the place of a file.
var errIrregular = fmt.Errorf("%w: not a regular file", store.ErrIrregular)

// Get reads the file, of at most limit bytes.
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
	root, err := s.open()
	if err != nil {
		return nil, obj, err
	}
	defer root.Close()
	dir, name := split(key)
	d, err := openDir(root, dir)
	if err != nil {
		return nil, obj, err
	}
	defer d.Close()
	body, obj, err = s.inspect(ctx, d, name, limit)
	if err == nil && obj.Size > limit {
		err = store.ErrTooLarge
	}
	obj.Key = key
	return body, obj, cmp.Or(err, ctx.Err())
}

// inspect returns a file's object, and its body unless it is larger than limit. Both are of
// one version: an open file stays the same if another takes its name.
//
// For a file that can't be opened, inspect returns the object with the error. For a
// directory, it returns errFolder. An object without an ETag means
// that nothing is known of the file.
func (s *Store) inspect(ctx context.Context, d *directory, name string, limit int64) (body []byte, obj store.Object, err error) {
	err = s.find(ctx, d, name, func() error {
		if body, obj, err = lookAt(d, name, limit); errors.Is(err, fs.ErrNotExist) {
			obj = store.Object{}
		}
		return err
	})
	return body, obj, err
}

// lookAt is inspect at one moment.
func lookAt(d *directory, name string, limit int64) ([]byte, store.Object, error) {
	info, err := d.Lstat(name)
	if err != nil {
		return nil, store.Object{}, err
	}
	if info.IsDir() {
		return nil, store.Object{}, errFolder
	}
	described := store.Object{ETag: statTag(info), Size: info.Size(), ModTime: info.ModTime()}
	if !info.Mode().IsRegular() {
		described.Size = -1
		return nil, described, fmt.Errorf("%w but a %s", errIrregular, kind(info.Mode()))
	}
	// If a pipe has taken its place by now, opening it must not wait for a writer.
	f, err := d.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, described, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, described, d.unopened(name, err)
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
		return nil, obj, cant("read", filepath.Join(d.path, name), err)
	}
	obj.Size = int64(len(body)) // another program can write to the file where it is
	obj.ETag = etag(body, info)
	return body, obj, nil
}

// etag returns a function of the body. The file's inode and times wouldn't do: an inode's
// number is used again at once, and mtime moves in ticks of up to 10 ms, so that two versions
// within a tick could have the same ETag.
func etag(body []byte, info fs.FileInfo) string {
	if len(body) > maxHashed {
		return statTag(info)
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:16])
}

// statTag replaces the ETag of a file that can't be read for a listing, or is too large. It
// is as good as mtime and inode are, and marked with "s-".
func statTag(info fs.FileInfo) string {
	return fmt.Sprintf("s-%x-%x-%x", info.Size(), info.ModTime().UnixNano(), inode(info))
}
