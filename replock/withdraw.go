package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// hastyTime bounds a withdrawal after a failure of the store, or after a cancellation. Objects that
// it leaves expire.
const hastyTime = 3 * time.Second

// withdraw removes all objects of an attempt, even if its context has ended. reason is the error that
// ended the attempt. Objects that can't be removed expire with the ttl.
func (l *Locker) withdraw(ctx context.Context, t *attempt, reason error) {
	t.underway.close(l.opts.Clock, hastyTime)
	hasty := !errors.Is(reason, ErrHeld) && !errors.Is(reason, errDoubt) && !errors.Is(reason, errLate)
	left := t.flag.put || t.pointer.put // an object is known to be stored
	t.flag.put = false
	if err := l.takeDown(context.WithoutCancel(ctx), t, hasty); err != nil && left {
		e := t.event(EventReleaseFailed)
		e.Err = err
		l.tell(e)
	}
}

// A look at lock.exclusive counts for justNow and three round trips. If another client puts lock.exclusive
// within that time, our deletion removes it.
const justNow = 200 * time.Millisecond

// takeDown deletes lock.exclusive if it is ours and our lease lasts, and then our flag. In this order the
// flag shows others, as long as lock.exclusive is stored, that its acquirer might be about to withdraw. A
// hasty takeDown spends at most hastyTime and two round trips on each object. If the first isn't removed,
// the flag gets only the rest of that time.
func (l *Locker) takeDown(ctx context.Context, t *attempt, hasty bool) error {
	limit := func() (context.Context, context.CancelFunc) {
		if hasty {
			return context.WithTimeout(ctx, hastyTime+2*t.trips.slowest())
		}
		return context.WithCancel(ctx)
	}
	step, cancel := limit()
	defer cancel()
	err := l.takeDownExclusive(step, t)
	if err == nil && t.pointer.maybe {
		step, cancel = limit()
		defer cancel()
	}
	return fault.Join(err, l.takeDownFlag(step, t))
}

func (l *Locker) takeDownFlag(ctx context.Context, t *attempt) error {
	if !t.flag.maybe {
		return nil
	}
	return l.remove(ctx, t.flag.key)
}

// takeDownExclusive deletes lock.exclusive, or empties it if deletes are refused. Each request
// comes after a look that shows our id. Any other body is another client's lock.
func (l *Locker) takeDownExclusive(ctx context.Context, t *attempt) error {
	if !t.pointer.maybe {
		return nil
	}
	left := t.deadline - l.opts.Clock.Elapsed()
	if left <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	each := l.times.Timeout + 2*t.trips.slowest() // for a look and a request
	return l.removeIf(ctx, t.pointer.key, each, func(ctx context.Context, send func(etag string) error) error {
		return l.ifOurs(ctx, t, send)
	})
}

// ifOurs calls send if lock.exclusive has our id. send gets the ETag if the store is known to keep that
// condition. If the condition is refused, ifOurs looks again and calls send without one, because the server
// might refuse any condition. If the backend itself keeps the condition, no look comes first.
func (l *Locker) ifOurs(ctx context.Context, t *attempt, send func(etag string) error) error {
	if etag := t.pointer.etag; etag != "" && l.conditions.deleteKept && l.opts.Clock.Elapsed() < t.deadline {
		if err := send(etag); !errors.Is(err, store.ErrPrecondition) && !errors.Is(err, store.ErrConditionUnsupported) {
			return err
		}
	}
	etag, ours, err := l.seeOurs(ctx, t)
	if err != nil || !ours {
		return err
	}
	if etag != "" && l.conditions.match.holds() {
		err := send(etag)
		switch {
		case errors.Is(err, store.ErrConditionUnsent): // nothing was sent, so the look is still recent
			return send("")
		case !errors.Is(err, store.ErrPrecondition) && !errors.Is(err, store.ErrConditionUnsupported):
			return err
		}
		if _, ours, err = l.lookOurs(ctx, t); err != nil || !ours {
			return err
		}
	}
	return send("")
}

// seeOurs is lookOurs, but makes no request if a recent look has shown lock.exclusive as ours. That look
// counts for one request. If the request gets no answer, the next one needs a look of its own.
func (l *Locker) seeOurs(ctx context.Context, t *attempt) (etag string, ours bool, err error) {
	shown := t.shown
	t.shown = 0
	if shown != 0 && l.opts.Clock.Elapsed()-shown <= justNow+3*t.trips.slowest() && l.opts.Clock.Elapsed() < t.deadline {
		return t.pointer.etag, true, nil
	}
	return l.lookOurs(ctx, t)
}

// lookOurs reports whether lock.exclusive has our id, and returns its ETag. It fails if the lease has ended
// meanwhile, because then another client can have acquired the lock.
func (l *Locker) lookOurs(ctx context.Context, t *attempt) (etag string, ours bool, err error) {
	raw, o, err := l.store.Get(ctx, t.pointer.key, maxBody)
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrTooLarge): // not ours
		return "", false, nil
	case err != nil:
		return "", false, err
	case ctx.Err() != nil:
		return "", false, context.Cause(ctx)
	case l.opts.Clock.Elapsed() >= t.deadline:
		return "", false, context.DeadlineExceeded
	}
	lease, err := decode(raw)
	return o.ETag, err == nil && t.ids[lease.ID], nil
}

// removal deletes many stale flags of other clients, in few requests if the store can. It goes on if the
// store refuses to delete one of them, and stops when the store fails.
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

// batch deletes flags in one request. left are the flags that must be deleted one by one, so that each has
// its own answer: the flags that the store didn't report as deleted, or all if the request failed.
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

// sweepMany deletes flags in few requests, if the store can. It returns the remaining flags. done means
// that they must not be deleted one by one.
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

// Release ends the lock: its context ends, and its objects are deleted, even if ctx has ended. A shared
// lock costs one delete. An exclusive one costs two at once, and before them a get of lock.exclusive,
// unless Check has just read it, or the store itself keeps If-Match for deletions. If the store doesn't
// allow deletes, a put replaces each. A second call waits for the first, and returns the same error. A
// Resume that is under way gives up first.
//
// An error means that an object might be left, which expires with the ttl. Of a lost lock only the
// flag is deleted. Release must not delete a lock.exclusive that another client has written. So it
// looks first, and makes the delete conditional if the store can.
func (k *Lock) Release(ctx context.Context) error { return k.lease.Release(ctx) }

// Free implements lease.Owner.
func (k *term) Free(ctx context.Context) error {
	k.t.deadline = k.end()
	if err := k.release(ctx); err != nil {
		k.tell(EventReleaseFailed, err)
		return fault.Errorf("releasing the %s lock (it expires within %v): %w", k.t.mode, k.l.opts.TTL, err)
	}
	k.tell(EventReleased, nil)
	return nil
}

// release deletes our objects: docs/evidence/protocol.md, Release. Of a lost lock it deletes only the flag.
//
// Why both can be deleted at once: until lock.exclusive is deleted it is live and ours, and excludes all
// others as the flag does. Whichever is deleted first, the other one still excludes all others.
func (k *term) release(ctx context.Context) error {
	defer func() { k.l.sweep(ctx, k.probes()) }()
	if k.Lost() != nil {
		return k.l.takeDownFlag(ctx, k.t)
	}
	flag := make(chan error, 1)
	go func() { flag <- k.l.takeDownFlag(ctx, k.t) }()
	k.t.shown = time.Duration(k.shown.Load())
	err := k.l.takeDownExclusive(ctx, k.t)
	return fault.Join(err, <-flag)
}
