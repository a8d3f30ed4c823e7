package towerfleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// Inspect returns the holder of a lock, also for an observing intent. The holder's pid is for
// people: no pid makes a lock stale (section 12.3).
func (b *Backend) Inspect(ctx context.Context, key string) (*locking.Info, error) {
	held, err := b.Blocked(ctx, key)
	if held == nil || err != nil {
		return nil, err
	}
	return held.info(), nil
}

// Blocked returns the HeldError that an acquirer without Force would get, or nil if the lock is
// free. It writes nothing.
func (b *Backend) Blocked(ctx context.Context, name string) (*HeldError, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now, err := b.holder(name)
	if now == nil || err != nil {
		return nil, classify(err)
	}
	return newHeld(name, now, b.opts.Clock.Now()), nil
}

// holder returns the lock file of a name or, without one, the temporary file of a request that
// is about to have the lock. It returns nil if the lock is free.
func (b *Backend) holder(name string) (*file, error) {
	now, err := read(b.path(name), name)
	if now != nil || err != nil {
		return now, err
	}
	rivals, err := b.rivals(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no directory has no locks
	}
	if err != nil || len(rivals) == 0 {
		return nil, err
	}
	return rivals[0], nil
}

func (e *HeldError) info() *locking.Info {
	i := &locking.Info{Key: e.Name, Stale: e.Stale, Trouble: e.Trouble, Revision: e.revision}
	if r := &e.record; e.Trouble == "" {
		i.Holder = fmt.Sprintf("%s (intent %s, by %s)",
			r.RequestID, text.Or(r.Intent, "unknown"), text.Or(r.Actor, "unknown"))
		i.Host, i.PID, i.TTL = text.Brief(r.HostID), r.PID, r.ttl()
		i.Request, i.Actor, i.Intent = r.RequestID, r.Actor, r.Intent
		i.Acquired, i.Renewed = r.created, r.beat
	}
	return i
}

// Cleanup removes the temporary files of repolocks that were killed in a critical section. It
// leaves those of other programs, and stale locks, as they are.
func (b *Backend) Cleanup(ctx context.Context) error {
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
		return classify(fmt.Errorf("lock directory %s can't be read: %w", b.dir, err))
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), ours) {
			continue
		}
		if err := os.Remove(filepath.Join(b.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return classify(fmt.Errorf("temporary file %s wasn't removed: %w", text.Escape(e.Name()), err))
		}
	}
	return nil
}
