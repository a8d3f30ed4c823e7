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
	now, err := read(b.path(name), name)
	if err != nil {
		return nil, err
	}
	if now == nil {
		rivals, err := b.rivals(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // no directory has no locks
		}
		if err != nil || len(rivals) == 0 {
			return nil, err
		}
		now = rivals[0]
	}
	return newHeld(name, now, b.opts.Clock.Now()), nil
}

func (e *HeldError) info() *locking.Info {
	i := &locking.Info{Key: e.Name, Stale: e.Stale, Trouble: e.Trouble}
	if r := &e.record; e.Trouble == "" {
		i.Holder = fmt.Sprintf("%s (intent %s, by %s)", r.RequestID, text.Or(r.Intent, "unknown"), text.Or(r.Actor, "unknown"))
		i.Host, i.PID, i.TTL = text.Brief(r.HostID), r.PID, r.ttl()
		i.Acquired, i.Renewed = r.created, r.beat
	}
	return i
}

// ErrLive is returned when a lock can't be broken because it isn't stale (section 7.1).
var ErrLive = errors.New("only a stale tower-fleet lock can be broken")

// Break removes a stale lock, and emits lock_stolen. It returns ErrLive for another lock, and for
// one that can't be read, unless stale is set: then it reports false.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
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
	now, err := read(b.path(name), name)
	if err != nil || now == nil {
		return false, err
	}
	held := newHeld(name, now, b.opts.Clock.Now())
	if !held.Stale {
		if stale {
			return false, nil
		}
		return false, fmt.Errorf("%w: %w", ErrLive, held)
	}
	if !sameHolder(held.info(), seen) {
		return false, nil
	}
	return b.removeStale(name, now)
}

// sameHolder compares all but Stale, which changes with time.
func sameHolder(a, b *locking.Info) bool {
	return a.Key == b.Key && a.Holder == b.Holder && a.Host == b.Host && a.PID == b.PID && a.TTL == b.TTL &&
		a.Acquired.Equal(b.Acquired) && a.Renewed.Equal(b.Renewed) && a.Trouble == b.Trouble
}

// removeStale steals a lock, so that no other program is allowed to steal it, and removes it.
func (b *Backend) removeStale(name string, now *file) (bool, error) {
	data, err := b.content(locking.NewHandle(name, DefaultTTL))
	if err != nil {
		return false, err
	}
	ok, err := b.replace(name, data, func(f *file) bool { return string(f.data) == string(now.data) })
	if !ok || err != nil {
		return false, err
	}
	b.emitStolen(name, now)
	if err := remove(b.path(name)); err != nil {
		return false, fmt.Errorf("lock file %s was stolen, but not removed; remove it by hand: %w", b.path(name), err)
	}
	return true, nil
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
		return fmt.Errorf("lock directory %s can't be read: %w", b.dir, err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), ours) {
			continue
		}
		if err := os.Remove(filepath.Join(b.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("temporary file %s wasn't removed: %w", e.Name(), err)
		}
	}
	return nil
}
