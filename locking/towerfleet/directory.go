package towerfleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/locking"
)

// Tests make another user of this process.
var executor = os.Geteuid

// prepare creates and checks the directory.
func (b *Backend) prepare() error {
	if !flock.Supported {
		return classed{fmt.Errorf("lock directory %s can't be used: this system has no flock", b.dir), locking.ErrUnfit}
	}
	if b.opts.Mode != Observe {
		created, err := create(b.dir)
		if err != nil {
			return err
		}
		if created && b.opts.Created != nil {
			b.opts.Created(b.dir)
		}
	}
	info, err := os.Stat(b.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && b.opts.Mode == Observe:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return classed{fmt.Errorf("lock directory %s leads nowhere, and wasn't created: mount what it links to, "+
			"or correct the URL", b.dir), locking.ErrUnfit}
	case err != nil:
		return fmt.Errorf("lock directory %s can't be read: %w", b.dir, err)
	}
	if trouble := unfit(info); trouble != "" {
		return classed{fmt.Errorf("lock directory %s %s", b.dir, trouble), locking.ErrUnfit}
	}
	f, err := os.Open(b.dir)
	if err != nil {
		return fmt.Errorf("lock directory %s can't be opened: %w", b.dir, err)
	}
	defer flock.Close(f)
	if _, err := flock.Try(f); err != nil {
		return classed{fmt.Errorf("lock directory %s can't be locked by flock: put it on a local file system: %w",
			b.dir, err), locking.ErrUnfit}
	}
	return nil
}

// create creates a missing directory, and no parent of it: locks in a directory of our own, in the
// place of a share that isn't mounted, would exclude no other program. Neither would locks in a
// directory below one that has locks: there the name of a lock was written with a slash.
func create(dir string) (created bool, err error) {
	if _, failed := os.Lstat(dir); failed == nil {
		return false, nil
	}
	parent := filepath.Dir(dir)
	if lock := lockIn(parent); lock != "" {
		return false, classed{fmt.Errorf("lock directory %s wasn't created, because %s has locks itself (%s), and a lock's name has no slash: "+
			"correct the URL, or create the directory with mode 0700", dir, parent, lock), locking.ErrUnfit}
	}
	err = os.Mkdir(dir, 0o700)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err == nil, nil
	}
	info, failed := os.Stat(parent)
	switch {
	case errors.Is(failed, fs.ErrNotExist), errors.Is(failed, syscall.ENOTDIR):
		err = classed{fmt.Errorf("lock directory %s wasn't created, because %s doesn't exist: mount it, create it, "+
			"or correct the URL", dir, parent), locking.ErrUnfit}
	case failed == nil && !info.IsDir():
		err = classed{fmt.Errorf("lock directory %s wasn't created, because %s is no directory: correct the URL",
			dir, parent), locking.ErrUnfit}
	default:
		err = fmt.Errorf("lock directory %s can't be created: %w", dir, err)
	}
	return false, err
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

// unfit returns why a directory can't keep locks, and what to do, or nothing.
func unfit(dir fs.FileInfo) string {
	uid, known := owner(dir)
	switch mode := dir.Mode().Perm(); {
	case !dir.IsDir():
		return "is no directory"
	case known && uid != executor():
		return fmt.Sprintf("belongs to uid %d, which can't read the locks of uid %d: run this command as its owner",
			uid, executor())
	case mode != 0o700:
		return fmt.Sprintf("has mode %04o, so that others can see or change its locks, or its owner can't: "+
			"run chmod 700 on it once you know who uses it", mode)
	}
	return ""
}

// flockPatience bounds the wait for another process's critical section, which takes
// milliseconds.
const flockPatience = 10 * time.Second

// exclusive takes the flock of the directory.
func (b *Backend) exclusive(ctx context.Context) (unlock func(), err error) {
	f, err := os.Open(b.dir)
	if err != nil {
		return nil, fmt.Errorf("lock directory %s can't be opened: %w", b.dir, err)
	}
	end := b.opts.Clock.Elapsed() + flockPatience
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		ok, err := flock.Try(f)
		if ok {
			return func() { flock.Close(f) }, nil
		}
		if err == nil && b.opts.Clock.Elapsed() < end {
			err = clock.Sleep(ctx, b.opts.Clock, pause)
			if err == nil {
				continue
			}
		}
		f.Close()
		return nil, fmt.Errorf("the flock on lock directory %s wasn't free, nothing was done: "+
			"look which process stands still (lslocks): %w", b.dir, cmp.Or(err, context.DeadlineExceeded))
	}
}

// classed is an error that is also one of package locking's, with a message of its own.
type classed struct {
	error
	kind error
}

func (e classed) Unwrap() []error { return []error{e.error, e.kind} }

// classify makes an error of the file system one of package locking's.
func classify(err error) error {
	if errors.Is(err, fs.ErrPermission) || readOnly(err) {
		return classed{err, locking.ErrPermission}
	}
	return err
}
