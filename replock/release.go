package replock

import (
	"context"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/fault"
)

// Release ends the lock: its context ends, and its objects are deleted, even if ctx has ended. A
// shared lock costs one delete. An exclusive one costs two at once, and before them a get of
// lock.exclusive, unless Check has just read it, or the store itself keeps If-Match for deletions.
// If the store doesn't allow deletes, a put replaces each. A second call waits for the first, and
// returns the same. A Resume that is under way gives up first.
//
// An error means that an object might be left, which expires with the ttl. Of a lost lock only the
// flag is deleted. Release must not delete a lock.exclusive that another client has written. So it
// looks first, and makes the delete conditional if the store can.
func (k *Lock) Release(ctx context.Context) error { return k.lease.Release(ctx) }

// Free implements lease.Owner.
func (k *term) Free(ctx context.Context) error {
	k.t.deadline = k.end()
	if err := k.release(ctx); err != nil {
		k.tell(EventReleaseFailed, err)
		return fmt.Errorf("releasing the %s lock (it expires within %v): %w", k.t.mode, k.l.opts.TTL, err)
	}
	k.tell(EventReleased, nil)
	return nil
}

// release deletes our objects: docs/protocol.md, Release. Of a lost lock it deletes only the flag.
//
// Why both can be deleted at once: until lock.exclusive is deleted it is live and ours, and
// excludes all others as the flag does. Whichever is deleted first, the other one still stands for
// the lock.
func (k *term) release(ctx context.Context) error {
	defer func() { k.l.sweep(ctx, k.probes()) }()
	if k.Lost() != nil {
		return k.l.takeDownFlag(ctx, k.t)
	}
	flag := make(chan error, 1)
	go func() { flag <- k.l.takeDownFlag(ctx, k.t) }()
	k.t.shown = time.Duration(k.shown.Load())
	err := k.l.takeDownExclusive(ctx, k.t)
	return fault.Join(err, <-flag)
}
