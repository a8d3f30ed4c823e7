package beads

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/locking"
)

// Renew verifies that the lock file is the one that TryLock has created. It writes nothing. After a loss
// the lock stays lost, even if the file comes back. Release must be called then too, because it closes
// the file.
func (b *Backend) Renew(ctx context.Context, h locking.Handle) error {
	return b.look(ctx, h, (*own).verify)
}

// Resume is Renew, but also returns ErrLost if the file was written, renamed or linked since TryLock and
// is the same again, because another holder can have had the lock meanwhile. The system dates a change
// of mode, owner or times in the same way, so that is a loss too.
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
	err = verify(mine)
	mine.gone = errors.Is(err, locking.ErrLost)
	return err
}

// Release removes the file that TryLock has created, and no other. If the lock is known to be lost, but
// the file is there, Release removes it and returns ErrLost. After another error the file can still be
// there, and Release can be called again.
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
