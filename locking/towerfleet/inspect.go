package towerfleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// Inspect returns the holder of a lock, also for an observing intent: the one for which an acquirer
// without Force is refused. The holder's pid is for people: no pid makes a lock stale (section 12.3).
func (b *Backend) Inspect(ctx context.Context, key string) (info *locking.Info, err error) {
	defer lockfile.Classify(&err)
	if err := b.check(key, false); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now, err := b.holder(key)
	if now == nil || err != nil {
		return nil, err
	}
	return newHeld(key, now, b.opts.Clock.Now()).info(now.revision()), nil
}

// holder returns the lock file of a name or, without one, the temporary file of a request that
// is about to have the lock. It returns nil if the lock is free.
func (b *Backend) holder(name string) (*file, error) {
	now, err := read(b.path(name), name)
	if now != nil || err != nil {
		return now, err
	}
	rivals, err := b.rivals(locking.NewHandle(name, 0))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no directory has no locks
	}
	if err != nil || len(rivals) == 0 {
		return nil, err
	}
	return rivals[0], nil
}

// Cleanup removes the temporary files of repolocks that were killed in a critical section. It
// leaves those of other programs, and stale locks, as they are.
func (b *Backend) Cleanup(ctx context.Context) (err error) {
	defer lockfile.Classify(&err)
	if b.opts.Mode == Observe {
		return nil
	}
	unlock, err := b.exclusive(ctx)
	if err != nil {
		return err
	}
	defer unlock() // without which no repolock has a temporary file
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return fmt.Errorf("lock directory %s can't be read: %w", b.dir, err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), ours) {
			continue
		}
		if err := os.Remove(filepath.Join(b.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("temporary file %s wasn't removed: %w", text.Escape(e.Name()), err)
		}
	}
	return nil
}

// ErrLive is returned when a lock can't be broken because its holder lets it live (section 7.1).
var ErrLive error = fault.LockLive

// Break removes the lock that Inspect has described, and emits lock_stolen. It removes a stale
// lock, and one that can't be read unless stale is set: a person has looked at that file. For
// another lock it returns ErrLive or, if stale is set, reports false. It removes nothing but
// regular files. It reports false if the file has changed since Inspect.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (ok bool, err error) {
	defer lockfile.Classify(&err)
	name := seen.Key
	if err := b.check(name, true); err != nil {
		return false, err
	}
	unlock, err := b.exclusive(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	now, err := b.holder(name)
	if err != nil || now == nil {
		return false, err
	}
	held := newHeld(name, now, b.opts.Clock.Now())
	switch {
	case stale && !held.Stale:
		return false, nil
	case !held.Stale && held.Trouble == "":
		return false, fmt.Errorf("%w: %w", ErrLive, held)
	case seen.Revision != now.revision():
		return false, nil
	case !now.Info.Mode().IsRegular():
		return false, fmt.Errorf("%s: %s: look at it, and remove it yourself", held.Path, now.Trouble)
	}
	if now.Path == b.path(name) { // steal it, so that no other program is allowed to steal it before it is gone
		data, err := b.content(locking.NewHandle(name, DefaultTTL))
		if err != nil {
			return false, err
		}
		if ok, err := b.replace(name, data, now.same); !ok || err != nil {
			return false, err
		}
		b.emitStolen(name, now)
	}
	// A script whose temporary file it was can't move that any more, and is refused.
	err = remove(now.Path)
	if errors.Is(err, fs.ErrNotExist) && now.Path != b.path(name) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("file %s of lock %s wasn't removed; remove it by hand: %w", held.Path, name, err)
	}
	if now.Path != b.path(name) {
		b.emitStolen(name, now)
	}
	return true, nil
}
