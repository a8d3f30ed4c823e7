package beads

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/locking"
)

const (
	tempPrefix = Key + ".repolock-"
	tempSuffix = ".tmp"
)

func (b *Backend) temp() string {
	return filepath.Join(b.dir, tempPrefix+rand.Text()+tempSuffix)
}

// own is a lock file of ours. It is open, so that no other file gets its inode number.
type own struct {
	*lockfile.File
	stamp int64 // when the file was last changed before TryLock verified it at its end
	gone  bool  // the lock is known to be lost
}

// link creates the lock file, complete from its first moment. It returns nil if there is one.
func (b *Backend) link() (*own, error) {
	body, err := json.MarshalIndent(b.record(), "", "  ")
	if err != nil {
		return nil, err
	}
	f, err := lockfile.Create(b.path, b.temp(), body, 0o644, os.Link)
	if errors.Is(err, fs.ErrExist) {
		return nil, nil
	}
	return &own{File: f}, err
}

// verify returns ErrLost if the lock file isn't this one any more.
func (o *own) verify() error {
	info, err := os.Lstat(o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return o.lost("removed")
	case err != nil:
		return err
	case !os.SameFile(info, o.Info):
		return o.lost("replaced")
	}
	body, err := io.ReadAll(io.NewSectionReader(o.Open, 0, maxSize))
	if err != nil {
		return err
	}
	if !bytes.Equal(body, o.Body) {
		return o.lost("overwritten")
	}
	return nil
}

// untouched is verify, and returns ErrLost as well if the file was changed and changed back.
func (o *own) untouched() error {
	now, err := stamp(o.Open)
	if err != nil {
		return err
	}
	if now != o.stamp {
		return o.lost("changed")
	}
	return o.verify()
}

func (o *own) lost(how string) error {
	return fmt.Errorf("another program has %s %s: %w", how, o.Path, locking.ErrLost)
}

// unlink removes the lock file if it is this one, and returns ErrLost if it isn't.
func (b *Backend) unlink(mine *own) error {
	if err := mine.verify(); err != nil {
		return err
	}
	removed, err := b.remove(mine.File)
	if err == nil && !removed {
		err = mine.lost("replaced")
	}
	return err
}

// remove removes the lock file if it is this one, and reports whether it did. It renames it
// aside first, and puts another one back.
func (b *Backend) remove(f *lockfile.File) (bool, error) {
	aside := b.temp()
	if err := os.Rename(b.path, aside); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	now, err := lockfile.Read(aside, maxSize)
	if now != nil && now.Err == nil && os.SameFile(now.Info, f.Info) && bytes.Equal(now.Body, f.Body) {
		return true, os.Remove(aside)
	}
	return false, cmp.Or(err, putBack(aside, b.path))
}

// putBack returns a file to its name. If another lock has the name, the file stays aside.
func putBack(aside, path string) error {
	err := os.Link(aside, path)
	if lockfile.NoLinks(err) {
		if _, there := os.Lstat(path); errors.Is(there, fs.ErrNotExist) {
			return os.Rename(aside, path)
		}
	}
	if err != nil {
		return fmt.Errorf("the lock %s of another program was moved to %s, and can't be put back, so that program must end: %w",
			path, aside, err)
	}
	return os.Remove(aside)
}
