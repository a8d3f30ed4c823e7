package replock

import (
	"context"
	"errors"

	"github.com/repolock/repolock/store"
)

// withdraw removes what a try has put, for the reason that ended it, and also
// after its context has ended. What can't be removed expires with the ttl.
func (l *Locker) withdraw(ctx context.Context, t *try, reason error) {
	t.underway.close(l.opts.Clock, haste)
	hasty := !errors.Is(reason, ErrHeld) && !errors.Is(reason, errDoubt) && !errors.Is(reason, errLate)
	left := t.flag.put || t.exclusive.put // otherwise nothing of ours is known to be stored
	t.flag.put = false
	if err := l.takeDown(context.WithoutCancel(ctx), t, hasty); err != nil && left {
		l.tell(Event{Kind: EventReleaseFailed, Mode: t.mode, Operation: t.operation, ID: t.id, Key: t.flag.key, Err: err})
	}
}

// takeDown deletes lock.exclusive if it is ours, and only while our lease lasts,
// and then our flag, which no other client ever writes. If it is hasty it spends no
// more than haste and two round trips on each, and tries the second only if it has had an answer to the first.
func (l *Locker) takeDown(ctx context.Context, t *try, hasty bool) error {
	limit := func() (context.Context, context.CancelFunc) {
		if hasty {
			return context.WithTimeout(ctx, haste+2*t.trips.slowest())
		}
		return context.WithCancel(ctx)
	}
	step, cancel := limit()
	defer cancel()
	err := l.takeDownExclusive(step, t)
	if err == nil && t.exclusive.maybe {
		step, cancel = limit()
		defer cancel()
	}
	return join(err, l.takeDownFlag(step, t))
}

func (l *Locker) takeDownFlag(ctx context.Context, t *try) error {
	if !t.flag.maybe {
		return nil
	}
	return l.remove(ctx, t.flag.key)
}

// takeDownExclusive deletes lock.exclusive, or empties it where deleting isn't allowed.
// A look precedes each request, and a request is sent only if the look shows a body of
// ours: another client may have written the key at any time, and that body is its lock.
func (l *Locker) takeDownExclusive(ctx context.Context, t *try) error {
	if !t.exclusive.maybe {
		return nil
	}
	left := t.deadline - l.opts.Clock.Elapsed()
	if left <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	key := t.exclusive.key
	return l.removeBy(ctx, key, l.timeout()+2*t.trips.slowest(), // a look and a request
		func(ctx context.Context) error {
			return l.ifOurs(ctx, t, func(etag string) error { return l.deleteSeen(ctx, key, etag) })
		},
		func(ctx context.Context) error {
			return l.ifOurs(ctx, t, func(etag string) error {
				_, err := l.store.Put(ctx, key, nil, store.PutOptions{IfMatch: etag})
				return err
			})
		})
}

// ifOurs calls send if lock.exclusive has a body of ours, with its ETag if the store is
// known to heed that as a condition. If the condition is refused it looks again, and
// calls send without one: the server may refuse what it claims to understand.
func (l *Locker) ifOurs(ctx context.Context, t *try, send func(etag string) error) error {
	etag, ours, err := l.lookOurs(ctx, t)
	if err != nil || !ours {
		return err
	}
	if etag != "" && l.conditions.match.holds() {
		err := send(etag)
		switch {
		case errors.Is(err, store.ErrConditionUnsent): // what was seen is as new as before
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

// lookOurs reports whether lock.exclusive has a body of ours, and its ETag. It fails if
// the time to act on that is over: another client may be in by then.
func (l *Locker) lookOurs(ctx context.Context, t *try) (etag string, ours bool, err error) {
	raw, o, err := l.store.Get(ctx, t.exclusive.key, maxBody)
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrTooLarge): // and so not ours
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

// deleteSeen deletes a key if it has this ETag; "" is any.
func (l *Locker) deleteSeen(ctx context.Context, key, etag string) error {
	if etag != "" {
		return store.DeleteIfMatch(ctx, l.store, key, etag)
	}
	return l.store.Delete(ctx, key)
}
