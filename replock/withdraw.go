package replock

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// hastyTime bounds a withdrawal after a failure of the store, or after a cancellation. Objects that
// it leaves expire.
const hastyTime = 3 * time.Second

// withdraw removes all objects of a try, even if its context has ended. reason is the error that
// ended the try. Objects that can't be removed expire with the ttl.
func (l *Locker) withdraw(ctx context.Context, t *try, reason error) {
	t.underway.close(l.opts.Clock, hastyTime)
	hasty := !errors.Is(reason, ErrHeld) && !errors.Is(reason, errDoubt) && !errors.Is(reason, errLate)
	left := t.flag.put || t.exclusive.put // otherwise none is known to be stored
	t.flag.put = false
	if err := l.takeDown(context.WithoutCancel(ctx), t, hasty); err != nil && left {
		e := t.event(EventReleaseFailed)
		e.Err = err
		l.tell(e)
	}
}

// justNow and three round trips are the time for which a look at lock.exclusive replaces a new
// look. The deletion hits a lock.exclusive that another client puts within that time.
const justNow = 200 * time.Millisecond

// takeDown deletes lock.exclusive if it is ours and our lease lasts, and then our flag. In this
// order others see, as long as lock.exclusive is stored, that its acquirer might be about to
// withdraw. A hasty takeDown spends at most hastyTime and two round trips on each object, and tries
// the second only after an answer to the first.
func (l *Locker) takeDown(ctx context.Context, t *try, hasty bool) error {
	limit := func() (context.Context, context.CancelFunc) {
		if hasty {
			return context.WithTimeout(ctx, hastyTime+2*t.trips.slowest())
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
	return fault.Join(err, l.takeDownFlag(step, t))
}

func (l *Locker) takeDownFlag(ctx context.Context, t *try) error {
	if !t.flag.maybe {
		return nil
	}
	return l.remove(ctx, t.flag.key)
}

// takeDownExclusive deletes lock.exclusive, or empties it if deletes are refused. Each request
// comes after a look that shows our id. Any other body is another client's lock.
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
	each := l.times.Timeout + 2*t.trips.slowest() // for a look and a request
	return l.removeIf(ctx, t.exclusive.key, each, func(ctx context.Context, send func(etag string) error) error {
		return l.ifOurs(ctx, t, send)
	})
}

// ifOurs calls send if lock.exclusive has our id. It passes the ETag if the store is known to keep
// that condition. If the condition is refused, ifOurs looks again and calls send without one,
// because the server might refuse any condition. A backend that itself keeps the condition needs no
// look before it.
func (l *Locker) ifOurs(ctx context.Context, t *try, send func(etag string) error) error {
	if etag := t.exclusive.etag; etag != "" && l.conditions.deleteKept && l.opts.Clock.Elapsed() < t.deadline {
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
		case errors.Is(err, store.ErrConditionUnsent): // the look is still as new as before
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

// seeOurs is lookOurs, but makes no request if a recent look has shown lock.exclusive as ours. That
// look counts once. If the request after it has no answer, the next request needs a look of its
// own.
func (l *Locker) seeOurs(ctx context.Context, t *try) (etag string, ours bool, err error) {
	shown := t.shown
	t.shown = 0
	if shown != 0 && l.opts.Clock.Elapsed()-shown <= justNow+3*t.trips.slowest() && l.opts.Clock.Elapsed() < t.deadline {
		return t.exclusive.etag, true, nil
	}
	return l.lookOurs(ctx, t)
}

// lookOurs reports whether lock.exclusive has our id, and returns its ETag. It fails if the lease
// has ended since, because another client can have entered by then.
func (l *Locker) lookOurs(ctx context.Context, t *try) (etag string, ours bool, err error) {
	raw, o, err := l.store.Get(ctx, t.exclusive.key, maxBody)
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
