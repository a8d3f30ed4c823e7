package replock

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// maxSwept is the number of emptied flags that an acquire removes one by one, and maxSweeps the
// number of requests in which it removes many at once.
const (
	maxSwept  = 16 * atOnce
	maxSweeps = 16
)

// sweep deletes flags that were emptied by clients that aren't allowed to delete. Such flags make
// listings longer, and no lock depends on them. So sweep ends at the first failure, and after
// hastyTime.
func (l *Locker) sweep(ctx context.Context, released []*entry) {
	ctx, cancel := context.WithTimeout(ctx, hastyTime)
	defer cancel()
	remove := func(e *entry) error {
		_, err := once(ctx, "delete "+e.Key, l.delete(e.Key))(hastyTime)
		return err
	}
	if len(released) == 0 || remove(released[0]) != nil {
		return
	}
	left, done := l.sweepMany(ctx, released[1:])
	if done {
		return
	}
	var failed atomic.Bool
	each(left[:min(len(left), maxSwept)], func(_ int, e *entry) {
		if !failed.Load() && remove(e) != nil {
			failed.Store(true)
		}
	})
}

// sweepMany deletes flags in few requests, if the store can. It returns the flags that are left.
// done means that they are to be left.
func (l *Locker) sweepMany(ctx context.Context, released []*entry) (left []*entry, done bool) {
	for range maxSweeps {
		if len(released) <= atOnce {
			return released, false
		}
		chunk := released[:min(len(released), store.MaxBatch)]
		deleted, err := once(ctx, "delete emptied locks", l.deleteAll(chunk))(hastyTime)
		switch {
		case errors.Is(err, store.ErrBatchUnsupported):
			return released, false
		case err != nil || slices.Contains(deleted, false):
			return released, true
		}
		released = released[len(chunk):]
	}
	return released, true
}
