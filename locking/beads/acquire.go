package beads

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/locking"
)

// maxTries is how often TryLock creates a lock anew that another program removes meanwhile.
const maxTries = 5

// again is how long TryLock has the lock before it looks again: the time in which a daemon
// removes the stale lock that it has read.
const again = 100 * time.Millisecond

// TryLock creates the lock file, if there is none or a stale one, and waits for 100 ms or for
// Options.Settle, the longer of the two. Then it verifies that the file is still its own. It
// waits for nothing else but the flock of the directory, for 10 s at most. If the file is gone,
// it begins anew, up to four times. If the context ends, TryLock removes the file.
func (b *Backend) TryLock(ctx context.Context, key string, ttl time.Duration) (h locking.Handle, ok bool, err error) {
	defer lockfile.Classify(&err)
	if err := b.check(ctx, key); err != nil {
		return h, false, err
	}
	if ttl <= 0 {
		return h, false, fmt.Errorf("lock %s: the ttl must be positive, not %v", b.path, ttl)
	}
	for range maxTries {
		mine, err := b.create(ctx)
		if err != nil {
			return h, false, fmt.Errorf("the lock %s wasn't created, nothing is held: %w", b.path, err)
		}
		if mine == nil {
			return h, false, nil
		}
		err = b.settle(ctx, mine)
		if err == nil {
			h := locking.NewHandle(key, ttl)
			b.mu.Lock()
			b.held[h.Token()] = mine
			b.mu.Unlock()
			return h, true, nil
		}
		if stays := b.drop(mine); stays != nil {
			return h, false, fmt.Errorf("the lock %s stays until process %d ends, because it can't be removed: %w, after: %w",
				b.path, b.opts.PID, stays, err)
		}
		if !errors.Is(err, locking.ErrLost) {
			return h, false, fmt.Errorf("the lock %s was removed again, nothing is held: %w", b.path, err)
		}
	}
	return h, false, fmt.Errorf("another program removes %s each time that it is created, nothing is held: end that program",
		b.path)
}

// create creates the lock file. It returns nil if another holder has the lock.
func (b *Backend) create(ctx context.Context) (*own, error) {
	if err := b.ended(); err != nil {
		return nil, err
	}
	unlock, exclusive, err := b.flock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	there, err := b.read()
	if err != nil {
		return nil, err
	}
	if there != nil {
		if !exclusive || !b.stale(there) {
			return nil, nil
		}
		if removed, err := b.remove(there.File); !removed || err != nil {
			return nil, err
		}
	}
	return b.link()
}

// settle waits while the file is ours. It returns ErrLost as soon as it isn't.
func (b *Backend) settle(ctx context.Context, mine *own) (err error) {
	whole, c := max(again, b.opts.Settle), b.opts.Clock
	end := c.Elapsed() + whole
	for step := again; ; step = clock.Tick {
		left := end - c.Elapsed()
		if left <= 0 {
			return b.ended()
		}
		if err := clock.Sleep(ctx, c, min(left, step)); err != nil {
			return fmt.Errorf("the %v for which it was to settle weren't over: %w", whole, err)
		}
		if mine.stamp, err = stamp(mine.Open); err != nil {
			return err
		}
		if err := mine.verify(); err != nil {
			return err
		}
	}
}

// drop removes a file that becomes no lock. It doesn't heed the context of TryLock, and if
// another process keeps the flock for longer than flock.Patience, it removes the file without.
func (b *Backend) drop(mine *own) error {
	defer mine.Open.Close()
	if unlock, _, err := b.flock(context.Background()); err == nil {
		defer unlock()
	}
	if err := b.unlink(mine); !errors.Is(err, locking.ErrLost) {
		return err
	}
	return nil
}
