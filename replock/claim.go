package replock

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// maxRefused is how often a store can refuse to write a lock.exclusive that no look lists: it
// takes something else for one (versitygw: a delete marker). From then on this try writes without a
// condition, unless the backend itself keeps it (decision 0004). That can overwrite only the
// lock.exclusive of an acquirer that comes after our last look, and that sees our flag.
const maxRefused = 3

// claim puts lock.exclusive if there is none, or in place of the stale or empty one that a look
// saw. It is no error if another acquirer was faster: the next look finds it.
func (l *Locker) claim(ctx context.Context, t *try, seen *entry) error {
	var opts store.PutOptions
	if seen != nil && !l.conditions.match.holds() {
		// The lock that looked stale was read and reaped for some time: does it still exist?
		now, err := l.find(ctx, t.exclusive.key)
		switch {
		case err != nil:
			return fault.While("looking at the lock", err)
		case now == nil:
			seen = nil
		case now.ETag != seen.ETag || now.Size != seen.Size:
			return nil // the next look judges it
		}
	}
	switch {
	case seen == nil:
		spurious := t.refusals >= maxRefused && l.store.Properties().IfAbsent != store.Kept
		opts.IfAbsent = !l.conditions.absent.fails() && !spurious
	case l.conditions.match.holds():
		opts.IfMatch = seen.ETag
	}
	before := t.exclusive.maybe
	t.exclusive.maybe = true
	o, again, err := l.putExclusive(ctx, t, opts)
	switch {
	case err == nil:
		t.claimed(o.ETag)
		return nil
	case errors.Is(err, store.ErrConditionUnsupported) && t.looked: // and nothing live was there
		return l.overwrite(ctx, t)
	case errors.Is(err, store.ErrConditionUnsupported):
		t.exclusive.maybe = before
		return nil
	case errors.Is(err, store.ErrPrecondition):
		// If it was sent again, the refusal can be because of our own put: the next look shows
		// it.
		t.exclusive.maybe = before || again
		if opts.IfAbsent {
			t.refusals++
		}
		return nil
	default:
		return fault.While("writing the lock", err)
	}
}

// overwrite puts lock.exclusive without a condition. No refusal of that is another acquirer's
// doing, and an earlier send can still be applied: t.exclusive.maybe stays set.
func (l *Locker) overwrite(ctx context.Context, t *try) error {
	o, _, err := l.putExclusive(ctx, t, store.PutOptions{})
	if err != nil {
		return fault.While("writing the lock", err)
	}
	t.claimed(o.ETag)
	return nil
}

// putExclusive puts lock.exclusive. again reports that it was sent again: then the earlier send
// can be applied at any time.
func (l *Locker) putExclusive(ctx context.Context, t *try, opts store.PutOptions) (o store.Object, again bool, err error) {
	var sends atomic.Int32
	send := l.send(t, t.exclusive.key, opts)
	o, err = repeat(ctx, l, "put "+t.exclusive.key, func(ctx context.Context) (store.Object, error) {
		sends.Add(1)
		return send(ctx)
	})
	again = sends.Load() > 1
	t.exclusive.twice = t.exclusive.twice || again
	return o, again, err
}
