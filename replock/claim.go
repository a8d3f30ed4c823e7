package replock

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// maxRefused is how often a try accepts that the store refuses to write a lock.exclusive that no
// look lists. Such a store takes another object for one (versitygw: a delete marker). After that
// the try writes without a condition, unless the backend itself keeps the condition (decision
// 0004). Such a put can overwrite only the lock.exclusive of an acquirer that comes after our last
// look, and its look shows our flag.
const maxRefused = 3

// claim puts lock.exclusive if there is none, or replaces the stale or empty one that a look has
// shown. If another acquirer was faster, claim returns nil: the next look shows it.
func (l *Locker) claim(ctx context.Context, t *try, seen *entry) error {
	var opts store.PutOptions
	if seen != nil && !l.conditions.match.holds() {
		// Reading and reaping took some time: is the stale lock.exclusive still there?
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
	case errors.Is(err, store.ErrConditionUnsupported) && t.looked: // and that look found nothing live
		return l.overwrite(ctx, t)
	case errors.Is(err, store.ErrConditionUnsupported):
		t.exclusive.maybe = before
		return nil
	case errors.Is(err, store.ErrPrecondition):
		// If the put was sent twice, its own first send can be the reason of the refusal. The next
		// look shows it.
		t.exclusive.maybe = before || again
		if opts.IfAbsent {
			t.refusals++
		}
		return nil
	default:
		return fault.While("writing the lock", err)
	}
}

// overwrite puts lock.exclusive without a condition. t.exclusive.maybe stays set, because an
// earlier send can still be applied.
func (l *Locker) overwrite(ctx context.Context, t *try) error {
	o, _, err := l.putExclusive(ctx, t, store.PutOptions{})
	if err != nil {
		return fault.While("writing the lock", err)
	}
	t.claimed(o.ETag)
	return nil
}

// putExclusive puts lock.exclusive. again reports that the put was sent more than once: then an
// earlier send can be applied at any time.
func (l *Locker) putExclusive(ctx context.Context, t *try, opts store.PutOptions) (o store.Object, again bool, err error) {
	var sends atomic.Int32
	send := l.send(t, t.exclusive.key, opts)
	o, err = repeat(ctx, l, l.times.Timeout, "put "+t.exclusive.key, func(ctx context.Context) (store.Object, error) {
		sends.Add(1)
		return send(ctx)
	})
	again = sends.Load() > 1
	t.exclusive.twice = t.exclusive.twice || again
	return o, again, err
}
