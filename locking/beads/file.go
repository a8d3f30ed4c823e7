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
	content
	file *os.File
	path string
	// stamp is the file's when it was verified at the end of TryLock.
	stamp change
	// gone is set once the lock is known to be lost. The backend's mutex guards it.
	gone bool
}

// link creates the lock file, complete from its first moment. It returns nil if there is one.
func (b *Backend) link() (*own, error) {
	body, err := json.MarshalIndent(b.record(), "", "  ")
	if err != nil {
		return nil, err
	}
	temp := b.temp()
	mine, err := b.write(temp, body)
	if err != nil {
		return nil, err
	}
	err = os.Link(temp, b.path)
	if err != nil && mine.verify() == nil {
		err = nil // a server of NFS has applied it, and its answer was lost
	}
	_ = os.Remove(temp) // if the second name stays, Cleanup removes it later
	if err == nil {
		return mine, nil
	}
	mine.file.Close()
	if errors.Is(err, fs.ErrExist) {
		return nil, nil
	}
	if isNoLinks(err) {
		mine, err := b.write(b.path, body)
		if errors.Is(err, fs.ErrExist) {
			return nil, nil
		}
		return mine, err
	}
	return nil, err
}

// write creates a file that must not exist. It removes one that it can't complete.
func (b *Backend) write(path string, body []byte) (*own, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(body)
	err = cmp.Or(err, f.Sync())
	info, err1 := f.Stat()
	if err := cmp.Or(err, err1); err != nil {
		f.Close()
		_ = os.Remove(path) // on a disk that broke, Cleanup or a person removes it later
		return nil, err
	}
	return &own{content: content{info: info, body: body}, file: f, path: b.path}, nil
}

// verify returns ErrLost if the lock file isn't this one any more.
func (o *own) verify() error {
	info, err := os.Lstat(o.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return o.lost("removed")
	case err != nil:
		return err
	case !os.SameFile(info, o.info):
		return o.lost("replaced")
	}
	body, err := io.ReadAll(io.NewSectionReader(o.file, 0, maxSize))
	if err != nil {
		return err
	}
	if !bytes.Equal(body, o.body) {
		return o.lost("overwritten")
	}
	return nil
}

func (o *own) lost(how string) error {
	return fmt.Errorf("another program has %s %s: %w", how, o.path, locking.ErrLost)
}

// remove removes the lock file if it is this one, and reports whether it did. It renames it
// aside first, and puts another one back.
func (b *Backend) remove(c *content) (bool, error) {
	aside := b.temp()
	if err := os.Rename(b.path, aside); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	info, err := os.Lstat(aside)
	if err != nil {
		return false, err
	}
	now, err := readFile(aside, info)
	if err == nil && os.SameFile(info, c.info) && now.trouble == c.trouble && bytes.Equal(now.body, c.body) {
		return true, os.Remove(aside)
	}
	return false, cmp.Or(err, putBack(aside, b.path))
}

// putBack returns a file to its name. If another lock has the name, the file stays aside.
func putBack(aside, path string) error {
	err := os.Link(aside, path)
	if isNoLinks(err) {
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
