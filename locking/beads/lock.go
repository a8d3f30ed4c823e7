package beads

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/locking"
)

// maxTries is how often TryLock creates the lock file again if other programs remove it.
const maxTries = 5

// settling is how long TryLock waits before it verifies its file. A daemon that has read the old, stale lock can still
// remove the new file during that time.
const settling = 100 * time.Millisecond

// TryLock creates the lock file if there is none, or replaces a stale one. After 100 ms it verifies that the file is
// still there and its own. If the file is gone, TryLock begins again, up to four times. If the context ends, it removes
// the file. It waits up to 10 s for the flock of the directory.
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
			return h, false, fmt.Errorf("the lock %s wasn't acquired, but its file can't be removed, so the lock stays held until process %d ends: %w, after: %w",
				b.path, os.Getpid(), stays, err)
		}
		if !errors.Is(err, locking.ErrLost) {
			return h, false, fmt.Errorf("the lock %s was created and removed again, nothing is held: %w", b.path, err)
		}
	}
	return h, false, fmt.Errorf("another program has removed %s %d times, nothing is held: end that program", b.path, maxTries)
}

// create creates the lock file. It returns nil if another holder has the lock.
func (b *Backend) create(ctx context.Context) (*own, error) {
	unlock, exclusive, err := b.flock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := b.redirected(locking.ErrUnfit); err != nil {
		return nil, err
	}
	there, err := b.read()
	if err != nil {
		return nil, err
	}
	if there != nil {
		if !exclusive || !b.stale(there) {
			return nil, nil
		}
		stale := b.info(there)
		if removed, err := b.remove(there.File); !removed || err != nil {
			return nil, err
		}
		b.replaced(stale)
	}
	return b.link()
}

// replaced reports a stale lock that was removed.
func (b *Backend) replaced(stale *locking.Info) {
	if b.opts.Replaced != nil {
		b.opts.Replaced(stale)
	}
}

// settle waits, and then returns ErrLost if the file isn't ours any more.
func (b *Backend) settle(ctx context.Context, mine *own) (err error) {
	if err := clock.Sleep(ctx, b.opts.Clock, settling); err != nil {
		return fmt.Errorf("the wait of %v was interrupted: %w", settling, err)
	}
	if mine.changed, err = lockfile.Changed(mine.Open); err != nil {
		return err
	}
	return mine.verify()
}

// drop removes the file of a lock that TryLock doesn't return, even if TryLock's context has ended. If another process
// holds the flock for longer than 10 s, drop removes the file without the flock.
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

// Renew verifies that the lock file is the one that TryLock has created. It writes nothing. After a loss the lock stays
// lost, even if the file comes back. A redirect that changes is a loss, too. The caller must then still call Release,
// because it closes the file.
func (b *Backend) Renew(ctx context.Context, h locking.Handle) error {
	return b.look(ctx, h, (*own).verify)
}

// Resume is Renew, but also returns ErrLost if the file was written, renamed or linked since TryLock and is the same
// again, because another holder might have acquired the lock meanwhile. A change of the file's mode, owner or times
// counts as a loss, too, because it also sets the ctime.
func (b *Backend) Resume(ctx context.Context, h locking.Handle) error {
	return b.look(ctx, h, (*own).untouched)
}

// look calls verify for the file of a handle, and records a loss.
func (b *Backend) look(ctx context.Context, h locking.Handle, verify func(*own) error) (err error) {
	defer lockfile.Classify(&err)
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	mine := b.held[h.Token()]
	if mine == nil || mine.gone {
		return b.notHeld()
	}
	if err = verify(mine); err == nil {
		err = b.redirected(locking.ErrLost)
	}
	mine.gone = errors.Is(err, locking.ErrLost)
	return err
}

// Release removes the file that TryLock has created, and no other. If the lock is known to be lost, but our file is
// there, Release removes it and returns ErrLost. After another error the file might still be there, and the caller can
// call Release again.
func (b *Backend) Release(ctx context.Context, h locking.Handle) (err error) {
	defer lockfile.Classify(&err)
	unlock, _, err := b.flock(ctx)
	if err != nil {
		return fmt.Errorf("the lock %s wasn't released: %w", b.path, err)
	}
	defer unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	mine := b.held[h.Token()]
	if mine == nil {
		return b.notHeld()
	}
	err = b.unlink(mine)
	if err != nil && !errors.Is(err, locking.ErrLost) {
		return fmt.Errorf("the lock %s wasn't released, it ends with process %d: %w", b.path, os.Getpid(), err)
	}
	delete(b.held, h.Token())
	mine.Open.Close()
	if err == nil && mine.gone {
		return b.notHeld()
	}
	return err
}

func (b *Backend) notHeld() error {
	return fmt.Errorf("%s isn't held: %w", b.path, locking.ErrLost)
}
