package replock

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// withdraw removes all objects of an attempt, even if its context has ended. reason is the error that ended the
// attempt. Objects that it can't remove expire with the ttl.
func (l *Locker) withdraw(ctx context.Context, t *attempt, reason error) {
	t.underway.close(l.opts.Clock, hastyTime)
	hasty := !errors.Is(reason, ErrHeld) && !errors.Is(reason, errDoubt) && !errors.Is(reason, errLate)
	left := t.flag.put || t.pointer.put // an object is known to be stored
	t.flag.put = false
	if errors.Is(reason, errCopied) {
		return // the objects are the copy's, too
	}
	if err := l.takeDown(context.WithoutCancel(ctx), t, hasty); err != nil && left {
		e := t.event(EventReleaseFailed)
		e.Err = err
		l.tell(e)
	}
}

// justNow and three of the quickest round trips are how long a look at lock.exclusive stays valid. If another client
// puts lock.exclusive within that time, our deletion removes it.
const justNow = 200 * time.Millisecond

// takeDown deletes lock.exclusive if it is ours and our lease lasts, and then our flag. In this order, as long as
// lock.exclusive is stored, the flag shows others that its acquirer might be about to withdraw. A hasty takeDown spends
// at most hastyTime and two round trips on each object. If lock.exclusive isn't removed, the flag gets only the rest of
// its time.
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

// takeDownExclusive deletes lock.exclusive, or empties it if the store refuses deletes. A look that shows a body of
// ours comes before each request. Any other body is another client's lock.
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
	key, each := t.pointer.key, l.times.Timeout+2*t.trips.slowest() // each is for a look and a request
	return l.deleteOrEmpty(key, func(by ending) error {
		_, err := repeat(ctx, l, each, by.what+" "+key, func(ctx context.Context) (nothing, error) {
			return nothing{}, l.endOurs(ctx, t, by)
		})
		return err
	})
}

// endOurs ends lock.exclusive if it is ours, in the surest way that the store has:
//
//  1. with the ETag of our put, if the backend itself keeps that condition: no look is needed;
//  2. else after a look that shows a body of ours, with the ETag that it shows, if the server is known to honour the condition;
//  3. else, or if the server refuses the condition, after a look and without one.
func (l *Locker) endOurs(ctx context.Context, t *attempt, by ending) error {
	key := t.pointer.key
	if etag := t.pointer.etag; etag != "" && l.conditions.deleteKept && l.opts.Clock.Elapsed() < t.deadline {
		if err := by.send(ctx, key, etag); !conditionRefused(err) {
			return err
		}
	}
	etag, ours, err := l.seeOurs(ctx, t)
	if err != nil || !ours {
		return err
	}
	if etag != "" && l.conditions.match.holds() {
		err := by.send(ctx, key, etag)
		unsent := errors.Is(err, store.ErrConditionUnsent) // the look is still recent
		if !unsent && !conditionRefused(err) {
			return err
		}
		if !unsent {
			if _, ours, err = l.lookOurs(ctx, t); err != nil || !ours {
				return err
			}
		}
	}
	return by.send(ctx, key, "")
}

// conditionRefused reports whether a server refused a condition: the condition isn't met, or the server accepts none.
func conditionRefused(err error) bool {
	return errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrConditionUnsupported)
}

// seeOurs is lookOurs, but sends no request if a recent look has shown lock.exclusive as ours. Such a look counts for
// one request. If that request gets no answer, the next one needs a new look.
func (l *Locker) seeOurs(ctx context.Context, t *attempt) (etag string, ours bool, err error) {
	shown := t.pointerSeen
	t.pointerSeen = 0
	if shown != 0 && l.opts.Clock.Elapsed()-shown <= justNow+3*t.trips.fastest() && l.opts.Clock.Elapsed() < t.deadline {
		return t.pointer.etag, true, nil
	}
	return l.lookOurs(ctx, t)
}

// lookOurs reports whether lock.exclusive has a body that we sent, and returns its ETag. It returns an error if the lease has ended
// meanwhile, because then another client might have acquired the lock.
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
	return o.ETag, t.wrote(t.pointer.key, raw), nil
}

// stepDown deletes lock.exclusive while shared locks conflict, because it excludes other clients as long as it is
// stored. It reports whether a single request has deleted it. If a second request was needed, the store might still
// apply the first, so the caller must not put lock.exclusive again.
func (l *Locker) stepDown(ctx context.Context, t *attempt) bool {
	if !t.pointer.maybe {
		return true
	}
	key := t.pointer.key
	_, err := once(ctx, "delete "+key, func(ctx context.Context) (nothing, error) {
		return nothing{}, l.endOurs(ctx, t, ending{"delete", l.deleteSeen})
	})(l.times.Timeout + 2*t.trips.slowest())
	if err != nil || !t.pointer.put || t.listed.another {
		return false
	}
	t.pointer = object{key: key, maybe: t.pointer.twice, twice: t.pointer.twice}
	return true
}
