package repository

import (
	"errors"
	"fmt"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// classes maps errors of replock and the store to classes of package locking. The first match counts.
var classes = []struct{ is, class error }{
	{replock.ErrLost, locking.ErrLost},
	{replock.ErrReleased, locking.ErrLost},
	{store.ErrPermission, locking.ErrPermission},
	{store.ErrConfig, locking.ErrUnfit},
	{store.ErrListing, locking.ErrUnfit},
	{store.ErrNotFound, locking.ErrUnfit}, // the bucket
	{replock.ErrSlow, locking.ErrUnfit},
}

// classed adds a class of package locking to an error, without changing its text. silent is set if the
// store has answered no request. Only then is the store unreachable.
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

// lost returns an ErrLost with its cause, which can be nil.
func lost(h locking.Handle, why error) error {
	if why == nil {
		return fmt.Errorf("lock %q: %w", h.Key(), locking.ErrLost)
	}
	return fmt.Errorf("lock %q: %w", h.Key(), fault.As(locking.ErrLost, why))
}
