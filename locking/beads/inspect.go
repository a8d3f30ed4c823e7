package beads

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/repolock/repolock/locking"
)

// Inspect returns the fields of the lock file. If it can't be parsed, Acquired is the file's
// modification time, and Trouble is the reason, in one line.
func (b *Backend) Inspect(ctx context.Context, key string) (*locking.Info, error) {
	if err := b.check(ctx, key); err != nil {
		return nil, err
	}
	c, err := b.read()
	if c == nil || err != nil {
		return nil, refused(err)
	}
	return b.info(c), nil
}

func (b *Backend) info(c *content) *locking.Info {
	info := &locking.Info{Key: Key, Acquired: c.info.ModTime(), Revision: c.revision()}
	if c.trouble != "" {
		info.Trouble = b.path + ": " + c.trouble
		return info
	}
	r := c.record
	info.Holder, info.Host, info.PID, info.Acquired, info.Stale = r.Holder, r.Hostname, r.PID, r.StartedAt, b.stale(c)
	return info
}

// revision changes when the file is replaced or written.
func (c *content) revision() string {
	h := sha256.New()
	fmt.Fprintln(h, inode(c.info), c.info.ModTime().UnixNano(), c.info.Size(), c.info.Mode().Type())
	h.Write(c.body)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Break removes the lock that Inspect has described, if the file is the same and has the same
// bytes and modification time. It removes a malformed lock too, unless stale is set. It returns
// an error for what is no regular file, and for a file that this user can't read.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	if err := b.check(ctx, seen.Key); err != nil {
		return false, err
	}
	removed, err := b.breakSeen(ctx, seen.Revision, stale)
	if err != nil {
		return removed, fmt.Errorf("the lock %s wasn't broken: %w", b.path, refused(err))
	}
	return removed, nil
}

func (b *Backend) breakSeen(ctx context.Context, revision string, stale bool) (bool, error) {
	unlock, exclusive, err := b.flock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	c, err := b.read()
	if c == nil || err != nil {
		return false, err
	}
	if c.revision() != revision || stale && !(exclusive && b.stale(c)) {
		return false, nil
	}
	if !c.info.Mode().IsRegular() {
		return false, fmt.Errorf("it is no regular file: look at it, and remove it yourself")
	}
	if c.unreadable != nil {
		return false, fmt.Errorf("this user can't read it: do it as its owner: %w", c.unreadable)
	}
	return b.remove(c)
}
