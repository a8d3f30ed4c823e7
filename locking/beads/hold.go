package beads

import (
	"context"
	"errors"
	"fmt"

	"github.com/repolock/repolock/locking"
)

// Renew verifies that the file is the one that TryLock has created, and that the process that it
// names runs. It writes nothing. A lock that was lost once stays lost; Release closes its file.
func (b *Backend) Renew(ctx context.Context, h locking.Handle) error {
	mine, err := b.find(ctx, h)
	if err != nil {
		return err
	}
	return b.note(mine, h, mine.verify())
}

// Resume is Renew, and returns ErrLost as well if the file was written, renamed or linked since
// TryLock, although it is the same now: another holder can have had the lock meanwhile. A change
// of its mode, its owner or its times is one too, because the system dates them alike.
func (b *Backend) Resume(ctx context.Context, h locking.Handle) error {
	mine, err := b.find(ctx, h)
	if err != nil {
		return err
	}
	now, err := stamp(mine.file)
	if err == nil && now != mine.stamp {
		err = mine.lost("changed")
	}
	if err == nil {
		err = mine.verify()
	}
	return b.note(mine, h, err)
}

// Release removes the file that TryLock has created, and no other. If the lock was lost before,
// but the file is there, it removes the file and returns ErrLost. After another error the file
// can be there still, and Release can be called again.
func (b *Backend) Release(ctx context.Context, h locking.Handle) error {
	unlock, _, err := b.flock(ctx)
	if err != nil {
		return fmt.Errorf("the lock %s wasn't released: %w", b.path, refused(err))
	}
	defer unlock()
	b.mu.Lock()
	mine := b.held[h.Token()]
	b.mu.Unlock()
	if mine == nil {
		return b.notHeld()
	}
	err = mine.verify()
	if err == nil {
		var removed bool
		if removed, err = b.remove(&mine.content); err == nil && !removed {
			err = mine.lost("replaced")
		}
	}
	if err != nil && !errors.Is(err, locking.ErrLost) {
		return fmt.Errorf("the lock %s wasn't released, it ends with process %d: %w", b.path, b.opts.PID, refused(err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, h.Token())
	mine.file.Close()
	if err == nil && mine.gone {
		return b.notHeld()
	}
	return err
}

// find returns the file of a handle that isn't known to be lost.
func (b *Backend) find(ctx context.Context, h locking.Handle) (*own, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	mine := b.held[h.Token()]
	if mine == nil || mine.gone {
		return nil, b.notHeld()
	}
	return mine, nil
}

// note keeps a loss in mind. A handle that was released meanwhile is lost.
func (b *Backend) note(mine *own, h locking.Handle, err error) error {
	if err == nil {
		if ended := b.ended(); ended != nil {
			err = fmt.Errorf("%w: %w", ended, locking.ErrLost)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[h.Token()] == nil {
		return b.notHeld()
	}
	if errors.Is(err, locking.ErrLost) {
		mine.gone = true
	}
	return refused(err)
}

func (b *Backend) notHeld() error {
	return fmt.Errorf("%s isn't held: %w", b.path, locking.ErrLost)
}
