package beads

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/locking"
)

// Inspect returns the fields of the lock file. Acquired is a time of the holder's clock, or the file's modification
// time if the file can't be parsed.
func (b *Backend) Inspect(ctx context.Context, key string) (_ *locking.Info, err error) {
	defer lockfile.Classify(&err)
	if err := b.check(ctx, key); err != nil {
		return nil, err
	}
	c, err := b.read()
	if c == nil || err != nil {
		return nil, err
	}
	return b.info(c), nil
}

// info describes a lock file.
func (b *Backend) info(c *content) *locking.Info {
	info := &locking.Info{Key: Key, Acquired: c.Info.ModTime(), Revision: c.revision()}
	if c.Unreadable != "" {
		info.Unreadable = b.path + ": " + c.Unreadable
		return info
	}
	r := c.record
	info.Holder, info.Host, info.PID, info.Acquired = r.Holder, r.Hostname, r.PID, r.StartedAt
	info.Stale, info.Remote = b.stale(c), !b.here(c)
	return info
}

// revision returns a hash that changes when the file is replaced or written.
func (c *content) revision() string {
	h := sha256.New()
	fmt.Fprintln(h, lockfile.Inode(c.Info), c.Info.ModTime().UnixNano(), c.Info.Size(), c.Info.Mode().Type())
	h.Write(c.Body)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Break removes the lock file that Inspect has described, if its inode, bytes and modification time are the same.
// Unless stale is set, it also removes a malformed file. It returns an error if the file isn't regular, or if this user
// can't read it.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (removed bool, err error) {
	defer lockfile.Classify(&err)
	if err := b.check(ctx, seen.Key); err != nil {
		return false, err
	}
	if removed, err = b.breakSeen(ctx, seen.Revision, stale); err != nil {
		err = fmt.Errorf("the lock %s wasn't broken: %w", b.path, err)
	}
	return removed, err
}

func (b *Backend) breakSeen(ctx context.Context, revision string, stale bool) (bool, error) {
	unlock, exclusive, err := b.flock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	c, err := b.read()
	switch {
	case c == nil || err != nil:
		return false, err
	case c.revision() != revision || stale && !(exclusive && b.stale(c)):
		return false, nil
	case !c.Info.Mode().IsRegular():
		return false, errors.New("it isn't a regular file: look at it, and remove it yourself")
	case c.Err != nil:
		return false, fmt.Errorf("this user can't read it: break it as its owner: %w", c.Err)
	}
	return b.remove(c.File)
}

// Cleanup removes a stale lock, and temporary files of this package that are at least a day old.
func (b *Backend) Cleanup(ctx context.Context) (err error) {
	defer lockfile.Classify(&err)
	if seen, err := b.Inspect(ctx, Key); err != nil {
		return err
	} else if seen != nil && seen.Stale {
		if _, err := b.Break(ctx, seen, true); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !strings.HasPrefix(e.Name(), tempPrefix) ||
			!strings.HasSuffix(e.Name(), tempSuffix) || b.opts.Clock.Now().Sub(info.ModTime()) < 24*time.Hour {
			continue
		}
		if err := os.Remove(filepath.Join(b.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return ctx.Err()
}
