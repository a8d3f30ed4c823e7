package replock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// enter returns nil when nothing is in our way any more.
//
// Why that excludes all others: our flag was put, and the put answered, before
// the last look began; the look found no live flag that conflicts; and it was
// over before the deadline of the flag, so that the flag stood, live, throughout.
// Whoever conflicts and wasn't seen puts their flag after our look began, looks
// after that, and sees ours.
func (l *Locker) enter(ctx context.Context, t *try, s sight) (found, error) {
	if err := l.raise(ctx, t); err != nil {
		return l.barred(ctx, t, s, err)
	}
	var vanished, claims int // how often we looked again because of that
	var y yielding
	var swept bool
	for {
		f, err := l.look(ctx, t, s)
		var pause time.Duration
		switch {
		case err != nil:
			return f, fmt.Errorf("looking for other locks: %w", err)
		case l.opts.Clock.Elapsed() >= t.deadline:
			return f, t.late()
		case len(f.live) > 0:
			again := false
			if pause, again = l.again(ctx, t, f, &y); !again {
				return f, ErrHeld
			}
		case len(f.vanished) > 0:
			if vanished == maxAgain {
				f.live = f.vanished // a listing outweighs a read
				return f, ErrHeld
			}
			pause = firstAgain
			vanished++
		case len(f.doubtful) > 0:
			return f, errDoubt
		default:
			if err := l.reap(ctx, t, f); err != nil {
				return f, err
			}
			if t.mode == Exclusive && !swept {
				l.sweep(ctx, f.released)
				swept = true
			}
			if t.mode == Shared || t.exclusive.listed {
				t.passed = f.exclusive
				return f, nil
			}
			// lock.exclusive must be in place before the last look, because it
			// is all that other clients of the wire format look at.
			if t.refusals >= maxRefused {
				l.conditions.absent.refute()
			}
			proof := l.proveAbsent(ctx, t)
			err := l.claim(ctx, t, f.exclusive)
			<-proof
			if err != nil {
				return f, err
			}
			if claims > 0 { // somebody else was faster, or undid it
				pause = firstAgain << min(claims-1, 6)
			}
			claims++
		}
		if pause > 0 {
			if err := clock.Sleep(ctx, l.opts.Clock, l.jitter(pause)); err != nil {
				return f, err
			}
		}
	}
}

// barred says why our flag can't be put: what is in the place of its folder, or of
// lock.exclusive, and is neither, is an unreadable lock, and a look names it.
func (l *Locker) barred(ctx context.Context, t *try, s sight, err error) (found, error) {
	if !errors.Is(err, store.ErrIrregular) {
		return found{}, err
	}
	if f, lerr := l.look(ctx, t, s); lerr == nil && len(f.live) > 0 {
		return f, ErrHeld
	}
	return found{}, err
}
