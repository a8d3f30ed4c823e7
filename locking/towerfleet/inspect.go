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

// Inspect returns the holder that excludes a client without Force. It also works with Options.Observe. Acquired and
// Renewed are times of the holder's wall clock. No PID makes a lock stale (section 12.3).
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
	info = &locking.Info{Key: key, Unreadable: now.Unreadable, Revision: now.revision()}
	if r := now.record; r != nil {
		info.Holder = fmt.Sprintf("%s (intent %s, by %s)", r.RequestID, text.Or(r.Intent, "unknown"), text.Or(r.Actor, "unknown"))
		info.Host, info.PID, info.TTL = text.Brief(r.HostID), r.PID, r.ttl()
		info.Request, info.Actor, info.Intent = r.RequestID, r.Actor, r.Intent
		info.Acquired, info.Renewed, info.Stale = r.created, r.beat, r.stale(b.opts.Clock.Now())
	}
	return info, nil
}

// holder returns the lock file of a name. If there is none, it returns the temporary file of a request that is about to
// have the lock, or nil.
func (b *Backend) holder(name string) (*file, error) {
	now, err := read(b.path(name), name)
	if now != nil || err != nil {
		return now, err
	}
	rivals, err := b.rivals(locking.NewHandle(name, 0))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a missing directory has no locks
	}
	if err != nil || len(rivals) == 0 {
		return nil, err
	}
	return rivals[0], nil
}

// Cleanup removes temporary files that killed processes of this package have left. It doesn't touch other programs'
// temporary files, or stale locks.
func (b *Backend) Cleanup(ctx context.Context) (err error) {
	defer lockfile.Classify(&err)
	if b.opts.Observe {
		return nil
	}
	unlock, err := b.exclusive(ctx)
	if err != nil {
		return err
	}
	defer unlock() // a running process has a temporary file only while it holds the flock
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

// ErrLive is returned when Break refuses a lock because it isn't stale (section 7.1).
var ErrLive error = fault.LockLive

// Break removes the stale lock that Inspect has described, and emits lock_stolen. It returns ErrLive for a live lock.
// Unless stale is set, it also removes a lock that can't be read, because a person has looked at the file. It reports
// false if the file has changed since Inspect. It returns an error for a file that isn't regular.
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
	path, live := text.Escape(now.Path), now.record != nil && !now.record.stale(b.opts.Clock.Now())
	switch {
	case stale && (live || now.record == nil):
		return false, nil
	case live:
		r := now.record
		return false, fmt.Errorf("%w: lock %s wasn't broken: %s has a heartbeat of %s, by %s on %s (pid %d): wait until that ends",
			ErrLive, name, path, r.LastHeartbeatAt, r.RequestID, text.Or(r.HostID, "an unknown host"), r.PID)
	case seen.Revision != now.revision():
		return false, nil
	case !now.Info.Mode().IsRegular():
		return false, fmt.Errorf("%s: %s: look at it, and remove it yourself", path, now.Unreadable)
	}
	if now.Path == b.path(name) { // steal the lock first, so that no other program may steal it before it is gone
		data, err := b.content(locking.NewHandle(name, DefaultTTL))
		if err != nil {
			return false, err
		}
		if ok, err := b.replace(name, data, now.same); !ok || err != nil {
			return false, err
		}
		b.emitStolen(name, now)
	}
	err = remove(now.Path) // if it is a script's temporary file, the script's mv now fails, and the script is refused
	if errors.Is(err, fs.ErrNotExist) && now.Path != b.path(name) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("file %s of lock %s wasn't removed; remove it by hand: %w", path, name, err)
	}
	if now.Path != b.path(name) {
		b.emitStolen(name, now)
	}
	return true, nil
}
