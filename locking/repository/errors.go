package repository

import (
	"errors"
	"fmt"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// classes are what errors of the store mean for a lock. The first one fits.
var classes = []struct{ is, class error }{
	{replock.ErrLost, locking.ErrLost},
	{replock.ErrReleased, locking.ErrLost},
	{store.ErrPermission, locking.ErrPermission},
	{store.ErrConfig, locking.ErrUnfit},
	{store.ErrListing, locking.ErrUnfit},
	{store.ErrNotFound, locking.ErrUnfit}, // there is no bucket
	{replock.ErrSlow, locking.ErrUnfit},
}

// classed returns an error that is also one of package locking, with the same text. silent says
// that the store has answered no request: only then is it unreachable.
func classed(err error, silent bool) error {
	for _, c := range classes {
		if errors.Is(err, c.is) {
			return fault.As(c.class, err)
		}
	}
	if silent && errors.Is(err, store.ErrUnreachable) {
		return fault.As(locking.ErrUnreachable, err)
	}
	return err
}

// lost returns the error of a lock that isn't held any more.
func lost(h locking.Handle, why error) error {
	if why == nil {
		return fmt.Errorf("lock %q: %w", h.Key(), locking.ErrLost)
	}
	return fmt.Errorf("lock %q: %w", h.Key(), fault.As(locking.ErrLost, why))
}
