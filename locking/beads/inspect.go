package beads

import (
	"context"
	"fmt"

	"github.com/repolock/repolock/locking"
)

// Inspect returns the fields of the lock file. If it can't be parsed, Acquired is the file's
// modification time.
func (b *Backend) Inspect(ctx context.Context, key string) (*locking.Info, error) {
	if err := b.check(ctx, key); err != nil {
		return nil, err
	}
	c, err := b.read()
	if c == nil || err != nil {
		return nil, err
	}
	return b.info(c), nil
}

func (b *Backend) info(c *content) *locking.Info {
	if c.trouble != "" {
		return &locking.Info{Key: Key, Acquired: c.info.ModTime(), Trouble: b.path + ": " + c.trouble}
	}
	r := c.record
	return &locking.Info{Key: Key, Holder: r.Holder, Host: r.Hostname, PID: r.PID, Acquired: r.StartedAt, Stale: b.stale(c)}
}

// Break removes the lock that Inspect has described. It refuses what is no regular file.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	if err := b.check(ctx, seen.Key); err != nil {
		return false, err
	}
	unlock, exclusive, err := b.flock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	c, err := b.read()
	if c == nil || err != nil {
		return false, err
	}
	now := b.info(c)
	if !same(now, seen) || stale && (!now.Stale || !exclusive) {
		return false, nil
	}
	if !c.info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is no regular file: look at it, and remove it yourself", b.path)
	}
	return b.remove(c)
}

// same reports whether two descriptions are of one lock. It doesn't compare Stale, because a
// holder can end between them.
func same(a, b *locking.Info) bool {
	return a.Holder == b.Holder && a.Host == b.Host && a.PID == b.PID && a.Acquired.Equal(b.Acquired) && a.Trouble == b.Trouble
}
