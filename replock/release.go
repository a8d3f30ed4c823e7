package replock

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// Free implements lease.Owner.
func (k *term) Free(ctx context.Context) error {
	k.t.deadline = k.end()
	if err := k.release(ctx); err != nil {
		k.tell(EventReleaseFailed, err)
		return fault.Errorf("releasing the %s lock (it expires within %v): %w", k.t.mode, k.l.opts.TTL, err)
	}
	k.tell(EventReleased, nil)
	return nil
}

// release deletes our objects: docs/evidence/protocol.md, Release. If the lock is lost, it deletes only the flag. If it
// is lost to a copy of this process, it deletes nothing, because the objects are the copy's, too.
//
// Both can be deleted at once. Until lock.exclusive is deleted, it is live and ours, and excludes all others as the
// flag does. Whichever is deleted first, the other one still excludes all others.
func (k *term) release(ctx context.Context) error {
	defer func() { k.l.sweep(ctx, k.probes()) }()
	if lost := k.Lost(); lost != nil {
		if lost, ok := errors.AsType[*LostError](lost.Err); ok && lost.Copied {
			return nil
		}
	}
	second := make(chan error, 1)
	go func() { second <- k.dropSeconds(ctx, true) }()
	if k.Lost() != nil {
		return fault.Join(k.releaseLost(ctx), <-second)
	}
	flag := make(chan error, 1)
	go func() { flag <- k.l.takeDownFlag(ctx, k.t) }()
	k.t.pointerSeen = time.Duration(k.objectsSeen.Load())
	err := k.l.takeDownExclusive(ctx, k.t)
	return fault.Join(err, <-flag, <-second)
}

// releaseLost deletes the flag of a lost lock, unless another process continues with it. That process can have refreshed
// the flag since our last look, so releaseLost looks again before the deletion.
func (k *term) releaseLost(ctx context.Context) error {
	seen, err := k.l.find(ctx, k.t.flag.key)
	if err != nil || seen == nil {
		return err
	}
	if seen.Size != 0 && (seen.ETag == "" || seen.ETag != k.t.flag.etag) {
		switch c, err := k.l.get(ctx, k.t.flag.key); {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil && !errors.Is(err, store.ErrTooLarge):
			return err
		case k.t.copied(k.t.flag.key, c.raw):
			return nil
		}
	}
	return k.l.takeDownFlag(ctx, k.t)
}
