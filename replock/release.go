package replock

import (
	"context"
	"time"

	"github.com/repolock/repolock/internal/fault"
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

// release deletes our objects: docs/evidence/protocol.md, Release. If the lock is lost, it deletes only the flag.
//
// Both can be deleted at once. Until lock.exclusive is deleted, it is live and ours, and excludes all others as the
// flag does. Whichever is deleted first, the other one still excludes all others.
func (k *term) release(ctx context.Context) error {
	defer func() { k.l.sweep(ctx, k.probes()) }()
	second := make(chan error, 1)
	go func() { second <- k.dropSeconds(ctx, true) }()
	if k.Lost() != nil {
		return fault.Join(k.l.takeDownFlag(ctx, k.t), <-second)
	}
	flag := make(chan error, 1)
	go func() { flag <- k.l.takeDownFlag(ctx, k.t) }()
	k.t.pointerSeen = time.Duration(k.objectsSeen.Load())
	err := k.l.takeDownExclusive(ctx, k.t)
	return fault.Join(err, <-flag, <-second)
}
