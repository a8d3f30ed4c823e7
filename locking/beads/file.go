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

// own is our lock file. It is open, so that no other file can get its inode number.
type own struct {
	*lockfile.File
	changed int64 // lockfile.Changed when TryLock verified the file
	gone    bool  // the lock is known to be lost
}

// link creates the complete lock file in one step. It returns nil if the file exists.
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

// verify returns ErrLost unless this file is the lock file, with its old content.
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

// untouched is verify, but also returns ErrLost if the file was changed and changed back.
func (o *own) untouched() error {
	now, err := lockfile.Changed(o.Open)
	if err != nil {
		return err
	}
	if now != o.changed {
		return o.lost("changed")
	}
	return o.verify()
}

func (o *own) lost(how string) error {
	return fmt.Errorf("another program has %s %s: %w", how, o.Path, locking.ErrLost)
}

// unlink removes the lock file. It returns ErrLost if that isn't ours.
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

// remove removes the lock file if it is still f, and reports whether it did. It renames the file aside,
// compares it, and puts it back if it isn't f.
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

// putBack gives a file its name back. If another lock has the name, putBack leaves the file aside.
func putBack(aside, path string) error {
	err := os.Link(aside, path)
	if lockfile.NoLinks(err) {
		if _, there := os.Lstat(path); errors.Is(there, fs.ErrNotExist) {
			return os.Rename(aside, path)
		}
	}
	if err != nil {
		return fmt.Errorf("the lock %s of another program was moved to %s and can't be put back: end that program: %w",
			path, aside, err)
	}
	return os.Remove(aside)
}
