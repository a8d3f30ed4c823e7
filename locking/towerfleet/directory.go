package towerfleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/locking"
)

// Tests make another user of this process.
var executor = os.Geteuid

// unfit returns a locking.ErrUnfit that names the directory.
func (b *Backend) unfit(format string, args ...any) error {
	return fault.New(locking.ErrUnfit, "lock directory %s %s", b.dir, fmt.Sprintf(format, args...))
}

// prepare creates and checks the directory.
func (b *Backend) prepare() error {
	if !flock.Supported {
		return b.unfit("can't be used: this system has no flock")
	}
	if b.opts.Mode != Observe {
		if err := b.mkdir(); err != nil {
			return err
		}
	}
	info, err := os.Stat(b.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && b.opts.Mode == Observe:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return b.unfit("leads nowhere, and wasn't created: mount what it links to, or correct the URL")
	case err != nil:
		return fmt.Errorf("lock directory %s can't be read: %w", b.dir, err)
	}
	uid, known := owner(info)
	switch mode := info.Mode().Perm(); {
	case !info.IsDir():
		return b.unfit("is no directory")
	case known && uid != executor():
		return b.unfit("belongs to uid %d, which can't read the locks of uid %d: run this command as its owner", uid, executor())
	case mode != 0o700:
		return b.unfit("has mode %04o, so that others can see or change its locks, or its owner can't: "+
			"run chmod 700 on it once you know who uses it", mode)
	}
	f, err := os.Open(b.dir)
	if err != nil {
		return fmt.Errorf("lock directory %s can't be opened: %w", b.dir, err)
	}
	defer flock.Close(f)
	if _, err = flock.Try(f); err != nil {
		return b.unfit("can't be locked by flock: put it on a local file system: %v", err)
	}
	return nil
}

// mkdir creates a missing directory, and no parent of it: locks in a directory of our own, in the
// place of a share that isn't mounted, would exclude no other program. Neither would locks in a
// directory below one that has locks: there the name of a lock was written with a slash.
func (b *Backend) mkdir() error {
	if _, err := os.Lstat(b.dir); err == nil {
		return nil
	}
	parent := filepath.Dir(b.dir)
	if lock := lockIn(parent); lock != "" {
		return b.unfit("wasn't created, because %s has locks itself (%s), and a lock's name has no slash: "+
			"correct the URL, or create the directory with mode 0700", parent, lock)
	}
	switch err := os.Mkdir(b.dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
	case errors.Is(err, fs.ErrNotExist):
		return b.unfit("wasn't created, because %s doesn't exist: mount it, create it, or correct the URL", parent)
	case errors.Is(err, syscall.ENOTDIR):
		return b.unfit("wasn't created, because %s is no directory: correct the URL", parent)
	case err != nil:
		return fmt.Errorf("lock directory %s can't be created: %w", b.dir, err)
	case b.opts.Created != nil:
		b.opts.Created(b.dir)
	}
	return nil
}

// lockIn returns the file of a lock in a directory, or "" if it finds none.
func lockIn(dir string) string {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".lock")
		if !ok || CheckName(name) != nil {
			continue
		}
		if f, err := read(filepath.Join(dir, e.Name()), name); err == nil && f != nil && f.record != nil {
			return e.Name()
		}
	}
	return ""
}

// exclusive takes the flock of the directory: what follows is a critical section.
func (b *Backend) exclusive(ctx context.Context) (unlock func(), err error) {
	unlock, locked, err := flock.Dir(ctx, b.opts.Clock, b.dir, flock.Try)
	if err == nil && !locked {
		unlock()
		err = b.unfit("can't be locked by flock any more")
	}
	return unlock, err
}
