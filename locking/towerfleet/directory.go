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
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/locking"
)

// executor is a variable for tests.
var executor = os.Geteuid

func (b *Backend) unfit(format string, args ...any) error {
	return fault.New(locking.ErrUnfit, "lock directory %s %s", b.dir, fmt.Sprintf(format, args...))
}

// prepare creates and checks the directory.
func (b *Backend) prepare() error {
	if !flock.Supported {
		return b.unfit("can't be used: this system has no flock")
	}
	if !b.opts.Observe {
		if err := b.mkdir(); err != nil {
			return err
		}
	}
	info, err := os.Stat(b.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && b.opts.Observe:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return b.unfit("is a link to a missing directory, which wasn't created: mount that, or correct the URL")
	case err != nil:
		return fmt.Errorf("lock directory %s can't be read: %w", b.dir, err)
	}
	switch mode, uid := info.Mode().Perm(), lockfile.Owner(info); {
	case !info.IsDir():
		return b.unfit("isn't a directory: correct the URL")
	case uid != executor():
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

// mkdir creates a missing directory, unless its locks would probably exclude no other program: a missing
// parent can be a share that isn't mounted, and a parent with locks means a lock's name with a slash.
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
		return b.unfit("wasn't created, because %s isn't a directory: correct the URL", parent)
	case err != nil:
		return fmt.Errorf("lock directory %s can't be created: %w", b.dir, err)
	case b.opts.Created != nil:
		b.opts.Created(b.dir)
	}
	return nil
}

// lockIn returns the name of a lock file in a directory, or "" if it finds none.
func lockIn(dir string) string {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".lock")
		if !ok || checkName(name) != nil {
			continue
		}
		if f, err := read(filepath.Join(dir, e.Name()), name); err == nil && f != nil && f.record != nil {
			return e.Name()
		}
	}
	return ""
}

// exclusive takes the flock of the directory.
func (b *Backend) exclusive(ctx context.Context) (unlock func(), err error) {
	unlock, locked, err := flock.Dir(ctx, b.opts.Clock, b.dir, flock.Try)
	if err == nil && !locked {
		unlock()
		err = b.unfit("can't be locked by flock any more: put it on a local file system")
	}
	return unlock, err
}

// locked runs f with the lock file of a name, or nil, while it has the flock of the directory.
func (b *Backend) locked(ctx context.Context, name string, f func(now *file) error) error {
	unlock, err := b.exclusive(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := read(b.path(name), name)
	if err != nil {
		return err
	}
	return f(now)
}
