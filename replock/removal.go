package replock

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// removal deletes many stale flags of other clients, in few requests if the store can. It goes on
// if the store refuses to delete one of them, and ends when the store fails.
type removal struct {
	l        *Locker
	progress *progress
	singly   bool // a request for many at once has failed
	down     atomic.Bool
	failed   []error // the first failures
}

// maxFailures is the number of failures that an error lists.
const maxFailures = 3

// remove deletes up to store.MaxBatch flags, and returns those that are deleted.
func (r *removal) remove(ctx context.Context, entries []*entry) (gone []*entry) {
	left := entries
	if len(entries) > atOnce && !r.singly && !r.down.Load() {
		gone, left = r.batch(ctx, entries)
		r.progress.add(len(gone))
	}
	errs := make([]error, len(left))
	each(left, func(i int, e *entry) {
		if r.down.Load() {
			errs[i] = errUntried
			return
		}
		if errs[i] = r.l.remove(ctx, e.Key); errs[i] == nil {
			r.progress.add(1)
		} else if !store.Permanent(errs[i]) {
			r.down.Store(true)
		}
	})
	for i, e := range left {
		switch {
		case errs[i] == nil:
			gone = append(gone, e)
		case errs[i] != errUntried && len(r.failed) < maxFailures:
			r.failed = append(r.failed, errs[i])
		}
	}
	return gone
}

// batch deletes flags in one request. left are the flags that must be deleted one by one, so that
// each has its own answer: those that the answer doesn't name, or all if the request failed.
func (r *removal) batch(ctx context.Context, entries []*entry) (gone, left []*entry) {
	what := fmt.Sprintf("delete %d locks", len(entries))
	deleted, err := repeat(ctx, r.l, r.l.times.Timeout, what, r.l.deleteAll(entries))
	if err != nil {
		r.singly = true
		return nil, entries
	}
	for i, e := range entries {
		if deleted[i] {
			gone = append(gone, e)
		} else {
			left = append(left, e)
		}
	}
	return gone, left
}

// deleteAll returns a request that deletes all entries.
func (l *Locker) deleteAll(entries []*entry) func(context.Context) ([]bool, error) {
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return func(ctx context.Context) ([]bool, error) { return store.DeleteAll(ctx, l.store, keys) }
}
