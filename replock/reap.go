package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// removal deletes many stale flags of other clients, in few requests if the store can. It continues if the store
// refuses to delete one of them, and stops when the store fails.
type removal struct {
	l        *Locker
	progress *progress
	singly   bool // a request to delete many at once has failed
	down     atomic.Bool
	failed   []error // the first errors, up to maxFailures
}

// maxFailures is the number of errors that the error of a removal lists.
const maxFailures = 3

// remove deletes up to store.MaxBatch flags, and returns the deleted flags.
func (r *removal) remove(ctx context.Context, entries []*verdict.Entry) (gone []*verdict.Entry) {
	left := entries
	if len(entries) > atOnce && !r.singly && !r.down.Load() {
		gone, left = r.batch(ctx, entries)
		r.progress.add(len(gone))
	}
	errs := make([]error, len(left))
	each(left, func(i int, e *verdict.Entry) {
		if r.down.Load() {
			errs[i] = errUntried
			return
		}
		if errs[i] = r.l.remove(ctx, e.Key); errs[i] == nil {
			r.progress.add(1)
		} else if !r.l.final(errs[i]) {
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

// batch deletes flags in one request. left are the flags that the caller must delete one by one, so that each has its
// own answer: the flags that the store didn't report as deleted, or all flags if the request failed.
func (r *removal) batch(ctx context.Context, entries []*verdict.Entry) (gone, left []*verdict.Entry) {
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

// deleteAll returns a function that deletes all entries in one request, for repeat and once.
func (l *Locker) deleteAll(entries []*verdict.Entry) func(context.Context) ([]bool, error) {
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return func(ctx context.Context) ([]bool, error) { return store.DeleteAll(ctx, l.store, keys) }
}

// maxSwept is the number of emptied flags that an acquire deletes one by one. maxSweeps is the number of requests in
// which it deletes many at once.
const (
	maxSwept  = 16 * atOnce
	maxSweeps = 16
)

// sweep deletes flags that clients without the permission to delete have emptied. Such flags make listings longer, and
// no lock depends on them. So sweep ends at the first failure, and after hastyTime.
func (l *Locker) sweep(ctx context.Context, released []*verdict.Entry) {
	if len(released) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hastyTime)
	defer cancel()
	remove := func(e *verdict.Entry) error {
		_, err := once(ctx, "delete "+e.Key, l.delete(e.Key))(hastyTime)
		return err
	}
	if remove(released[0]) != nil {
		return
	}
	left, done := l.sweepMany(ctx, released[1:])
	if done {
		return
	}
	var failed atomic.Bool
	each(left[:min(len(left), maxSwept)], func(_ int, e *verdict.Entry) {
		if !failed.Load() && remove(e) != nil {
			failed.Store(true)
		}
	})
}

// sweepMany deletes flags in few requests, if the store can. It returns the remaining flags. done means that the caller
// must not delete them one by one.
func (l *Locker) sweepMany(ctx context.Context, released []*verdict.Entry) (left []*verdict.Entry, done bool) {
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

// reap deletes the stale locks that conflict, and waits for the answers. So if a holder wakes and still finds its flag,
// no acquirer has judged it stale and taken the lock.
//
// reap doesn't delete a stale lock.exclusive. An exclusive acquirer's claim overwrites it. A shared acquirer must not
// touch it, because a client of the original protocol might have put a live one there since it was read. A holder of
// this protocol that wakes notices anyway that its intent is gone. A holder of the original protocol looks at neither
// object.
func (l *Locker) reap(ctx context.Context, t *attempt, f verdict.Findings) error {
	var pointer, dead []*verdict.Entry
	for _, e := range f.Stale {
		if e.Kind != wire.KindExclusive {
			dead = append(dead, e)
		} else if t.mode == Exclusive {
			pointer = append(pointer, e)
		}
	}
	r := removal{l: l, progress: l.progress(t, EventReaping, len(dead))}
	for chunk := range slices.Chunk(dead, store.MaxBatch) {
		gone := r.remove(ctx, chunk)
		if len(r.failed) == 0 {
			gone, pointer = append(pointer, gone...), nil
		}
		l.reaped(t, f, gone)
	}
	if len(r.failed) > 0 {
		return unsure(fault.Errorf("removing stale locks: %w", fault.Join(r.failed...)))
	}
	l.reaped(t, f, pointer)
	return nil
}

// reaped reports removed entries as an event.
func (l *Locker) reaped(t *attempt, f verdict.Findings, gone []*verdict.Entry) {
	if len(gone) > 0 {
		e := t.event(EventReaped)
		e.Holders = l.infos(gone, f)
		l.tell(e)
	}
}
