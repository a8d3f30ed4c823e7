package dir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/repolock/repolock/internal/flock"
)

// lock keeps other clients from replacing or deleting a file of d, until the caller calls unlock. The package comment
// has the rules.
func (s *Store) lock(ctx context.Context, root, d *directory, name string) (unlock func(), err error) {
	if !s.flock {
		return func() {}, nil
	}
	if s.local {
		if unlock, err = lockFile(ctx, root, d, name); unlock != nil || err != nil {
			return unlock, err
		}
	}
	return lockRoot(ctx, root, flock.Try)
}

// lockFile takes the flock of a file of d, exclusive, and the flock of the root, shared. If it can't open a regular
// file, it returns neither unlock nor an error.
func lockFile(ctx context.Context, root, d *directory, name string) (unlock func(), err error) {
	share, err := lockRoot(ctx, root, flock.TryShared)
	if err != nil {
		return nil, err
	}
	defer func() {
		if unlock == nil {
			share()
		}
	}()
	for range maxTries {
		info, err := d.Lstat(name)
		if err != nil || !info.Mode().IsRegular() {
			return nil, nil
		}
		f, err := d.Open(name)
		if err != nil {
			return nil, nil
		}
		free, err := take(ctx, f, flock.Try)
		if err != nil {
			return nil, err
		}
		if stillNamed(d, name, f) {
			return func() { free(); share() }, nil
		}
		free() // another client replaced or deleted the file before we got the flock
	}
	return nil, nil
}

// stillNamed reports whether the name still belongs to an open file of d.
func stillNamed(d *directory, name string, f *os.File) bool {
	opened, err := f.Stat()
	named, err1 := d.Lstat(name)
	return err == nil && err1 == nil && os.SameFile(opened, named)
}

// lockRoot takes the flock of the root. It opens the root anew, because a flock belongs to an open file. So goroutines
// exclude each other too.
func lockRoot(ctx context.Context, root *directory, try func(*os.File) (bool, error)) (unlock func(), err error) {
	self, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	return take(ctx, self, try)
}

// take takes the flock of an open file by calling try. unlock closes the file. After an error, take has closed it.
//
// take polls, because a process that waits in flock(2) can't heed its context. A client holds the flock for tens of
// microseconds.
func take(ctx context.Context, f *os.File, try func(*os.File) (bool, error)) (unlock func(), err error) {
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		ok, err := try(f)
		if err != nil {
			f.Close()
			return nil, cant("lock", filepath.Clean(f.Name()), err)
		}
		if ok {
			return func() { flock.Close(f) }, nil
		}
		select {
		case <-ctx.Done():
			err := fmt.Errorf("the flock on %s %s, so nothing can be written there: end that process, or have it lock another file: %w",
				filepath.Clean(f.Name()), flockHolder(f), ctx.Err())
			f.Close()
			return nil, err
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// heldByAnother is the text for an unknown holder of a flock.
const heldByAnother = "is held by another process"

// canLock reports whether this file system has flocks of directories.
func canLock(self *os.File) bool {
	_, err := flock.Try(self)
	flock.Unlock(self) // does nothing if another process has the flock
	return err == nil
}
