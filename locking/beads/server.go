package beads

import (
	"context"
	"fmt"

	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/internal/text"
)

// Skip is for a server that works on beads databases, such as one that synchronizes them. The server calls it before
// each cycle, with the .beads directory, and must not touch the database if skip is true:
//
//   - There is no lock file: the server continues.
//   - The lock's process exists on this machine, even as another user's or as a zombie: the server skips the database.
//   - The lock's process has ended on this machine: Skip removes the file, and the server continues.
//   - The file is malformed, or of another host: the server skips the database.
//
// why describes the lock in one line, or is "" if there was none. If skip is false, why describes a lock that Skip has
// removed. With an error skip is true: the server doesn't know whether the database is locked.
//
// Skip follows a redirect, as Database does. It removes a stale file as TryLock does, under the flock of the directory,
// and so never a newer lock of another user of this package. On a file system without flock it removes nothing, and
// the server skips the database until a person breaks the lock. A cycle has no lock of its own: a tool that locks
// during a cycle must wait for the end of the cycle.
func Skip(ctx context.Context, dir string) (skip bool, why string, err error) {
	b, err := Open(dir, Options{})
	if err != nil {
		return true, "", err
	}
	return b.skip(ctx)
}

func (b *Backend) skip(ctx context.Context) (skip bool, why string, err error) {
	defer lockfile.Classify(&err)
	for range maxTries {
		if err := ctx.Err(); err != nil {
			return true, why, err
		}
		c, err := b.read()
		if c == nil || err != nil {
			return err != nil, why, err
		}
		if !b.stale(c) {
			return true, b.words(c), nil
		}
		removed, err := b.breakSeen(ctx, c.revision(), true)
		if err != nil {
			return true, why, fmt.Errorf("the lock %s is stale, but wasn't removed: %w", b.path, err)
		}
		if removed {
			why = "removed the lock of " + b.words(c)
			b.replaced(b.info(c))
		} else if c, err = b.read(); c != nil && err == nil && b.stale(c) {
			return true, b.words(c) + ", and this file system has no flock, so the lock stays", nil
		}
	}
	return true, "other programs replace " + b.path + " all the time", nil
}

// words describes the holder of a lock file in one line, and what this machine knows about its process.
func (b *Backend) words(c *content) string {
	if c.Unreadable != "" {
		return b.path + ": " + c.Unreadable
	}
	s := fmt.Sprintf("%s on %s (pid %d)", c.record.Holder, c.record.Hostname, c.record.PID)
	switch {
	case !b.here(c):
		s += "; only that host can find out whether the process has ended"
	case b.stale(c):
		s += ", whose process has ended"
	}
	return text.Line(s)
}
