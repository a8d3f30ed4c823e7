package replock

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

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
	raw, o, err := l.store.Get(ctx, t.pointer.key, wire.MaxBody)
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
	lease, err := wire.Decode(raw)
	return o.ETag, err == nil && t.ids[lease.ID], nil
}

// stepBack deletes lock.exclusive while shared locks conflict, because it excludes other clients as
// long as it is stored. It reports whether a single request has deleted it. If a second one was
// needed, the first can still be applied, so lock.exclusive can't be put again.
func (l *Locker) stepBack(ctx context.Context, t *attempt) bool {
	if !t.pointer.maybe {
		return true
	}
	key := t.pointer.key
	_, err := once(ctx, "delete "+key, func(ctx context.Context) (nothing, error) {
		return nothing{}, l.ifOurs(ctx, t, func(etag string) error { return l.deleteSeen(ctx, key, etag) })
	})(l.times.Timeout + 2*t.trips.slowest())
	if err != nil || !t.pointer.put || t.listed.another {
		return false
	}
	t.pointer = object{key: key, maybe: t.pointer.twice, twice: t.pointer.twice}
	return true
}
