package towerfleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"

	"github.com/repolock/repolock/internal/fault"

	"github.com/repolock/repolock/locking"
)

// ErrLive is returned when a lock can't be broken because its holder lets it live (section 7.1).
var ErrLive error = fault.LockLive

// Break removes the lock that Inspect has described, and emits lock_stolen. It removes a stale
// lock, and one that can't be read unless stale is set: a person has looked at that file. For
// another lock it returns ErrLive or, if stale is set, reports false. It removes nothing but
// regular files. It reports false if the file has changed since Inspect.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	ok, err := b.breakSeen(ctx, seen, stale)
	return ok, classify(err)
}

func (b *Backend) breakSeen(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	if b.opts.Mode == Observe {
		return false, ErrObserve
	}
	name := seen.Key
	if err := CheckName(name); err != nil {
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
	case now.irregular:
		return false, fmt.Errorf("%s: %s: look at it, and remove it yourself", held.Path, now.trouble)
	case now.path != b.path(name):
		return b.removeRival(name, now)
	}
	return b.removeSeen(name, now)
}

// revision is a hash of the file's bytes; for a file that can't be read, of what is known of it.
func (f *file) revision() string {
	if f.record != nil {
		return f.hash()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%d\x00%s",
		f.path, f.trouble, f.size, f.modified.UnixNano(), f.data))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// hash is of the file's bytes.
func (f *file) hash() string {
	sum := sha256.Sum256(f.data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// removeSeen steals a lock, so that no other program is allowed to steal it, and removes it.
func (b *Backend) removeSeen(name string, now *file) (bool, error) {
	data, err := b.content(locking.NewHandle(name, DefaultTTL))
	if err != nil {
		return false, err
	}
	ok, err := b.replace(name, data, func(f *file) bool { return bytes.Equal(f.data, now.data) })
	if !ok || err != nil {
		return false, err
	}
	b.emitStolen(name, now)
	if err := remove(b.path(name)); err != nil {
		return false, fmt.Errorf("lock file %s was stolen, but not removed; remove it by hand: %w", b.path(name), err)
	}
	return true, nil
}

// removeRival removes a temporary file that can't be read. A script whose file it was can't move
// it any more, and is refused.
func (b *Backend) removeRival(name string, rival *file) (bool, error) {
	err := remove(rival.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("temporary file %s wasn't removed; remove it by hand: %w", rival.path, err)
	}
	b.emitStolen(name, rival)
	return true, nil
}
