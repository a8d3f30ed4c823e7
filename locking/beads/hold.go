package beads

import (
	"context"
	"errors"
	"fmt"

	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/locking"
)

// Renew verifies that the file is the one that TryLock has created, and that the process that it
// names runs. It writes nothing. A lock that was lost once stays lost; Release closes its file.
func (b *Backend) Renew(ctx context.Context, h locking.Handle) error {
	return b.look(ctx, h, (*own).verify)
}

// Resume is Renew, and returns ErrLost as well if the file was written, renamed or linked since
// TryLock, although it is the same now: another holder can have had the lock meanwhile. A change
// of its mode, its owner or its times is one too, because the system dates them alike.
func (b *Backend) Resume(ctx context.Context, h locking.Handle) error {
	return b.look(ctx, h, (*own).untouched)
}

// look looks at the file of a handle, and whether the process that it names has ended. It keeps a
// loss in mind.
func (b *Backend) look(ctx context.Context, h locking.Handle, look func(*own) error) (err error) {
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
	err = look(mine)
	if ended := b.ended(); err == nil && ended != nil {
		err = fmt.Errorf("%w: %w", ended, locking.ErrLost)
	}
	mine.gone = errors.Is(err, locking.ErrLost)
	return err
}

// Release removes the file that TryLock has created, and no other. If the lock was lost before,
// but the file is there, it removes the file and returns ErrLost. After another error the file
// can be there still, and Release can be called again.
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
		return fmt.Errorf("the lock %s wasn't released, it ends with process %d: %w", b.path, b.opts.PID, err)
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
