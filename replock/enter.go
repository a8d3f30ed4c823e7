package replock

import (
	"context"
	"errors"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// enter returns nil when nothing conflicts any more.
//
// Why that excludes all others: our flag was put, and the put was answered, before the last look
// began. The look found no live flag that conflicts. It ended before the deadline of our flag, so
// our flag was stored and live throughout. A conflicting acquirer that the look didn't show puts
// its flag after our look began. Its own look comes after that, and shows our flag.
func (l *Locker) enter(ctx context.Context, t *try, q *queue) (findings, error) {
	if err := l.exists(ctx); err != nil {
		return findings{}, fault.While("looking for other locks", err)
	}
	if err := l.raise(ctx, t); err != nil {
		return l.barred(ctx, t, q.memory, err)
	}
	q.again.try = tryCounts{until: q.decidesBy(t)}
	for swept := false; ; {
		f, err := l.look(ctx, t, q.memory)
		next := q.again.afterLook(t, f, err)
		switch next.step {
		case giveUp:
			if errors.Is(next.err, ErrHeld) && len(f.live) == 0 {
				f.live = f.vanished // a listing outweighs a read
			}
			return f, next.err
		case stepBack:
			if !l.stepBack(ctx, t) {
				return f, ErrHeld
			}
		case goOn:
			if err := l.reap(ctx, t, f); err != nil {
				return f, err
			}
			if t.mode == Exclusive && !swept {
				l.sweep(ctx, f.released)
				swept = true
			}
			switch {
			case t.mode == Exclusive && !t.exclusive.listed:
				// lock.exclusive must be stored before the last look, because other clients of the
				// wire format look at nothing else.
				if err := l.claim(ctx, t, f.exclusive); err != nil {
					return f, err
				}
				next = q.again.afterClaim()
			case t.mode == Exclusive && q.fence && t.fence == 0:
				// The fence is taken before the last look as well. So an acquirer that is paused
				// after that look has a smaller number than one that enters meanwhile.
				if t.fence, err = l.nextFence(ctx, t.id); err != nil {
					return f, err
				}
			default:
				t.passed = f.exclusive
				return f, nil
			}
		}
		if next.pause > 0 {
			if err := clock.Sleep(ctx, l.opts.Clock, l.jitter(next.pause)); err != nil {
				return f, err
			}
		}
	}
}

// barred returns the error of an acquirer that couldn't put its flag. If an object stands in place
// of the flag's folder, or of lock.exclusive, and a look finds it, that object is an unreadable
// lock.
func (l *Locker) barred(ctx context.Context, t *try, s memory, err error) (findings, error) {
	if !errors.Is(err, store.ErrIrregular) {
		return findings{}, err
	}
	if f, lerr := l.look(ctx, t, s); lerr == nil && len(f.live) > 0 {
		return f, ErrHeld
	}
	return findings{}, err
}
