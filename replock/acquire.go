package replock

import (
	"context"

	"github.com/repolock/repolock/internal/lease"
)

// acquire takes a lock: docs/evidence/protocol.md, Acquire. It returns when it has the lock, when another holder
// certainly has a conflicting one, or when it can't find out. A failed attempt withdraws all its objects. Its findings
// name the conflicting locks. After each attempt, decider.afterAttempt decides the next step.
func (l *Locker) acquire(ctx context.Context, mode Mode, operation string, opts []AcquireOption) (*term, error) {
	if err := CheckOperation(operation); err != nil {
		return nil, err
	}
	q := l.newQueue(ctx, mode, operation, opts)
	if err := q.check(); err != nil {
		return nil, err
	}
	ctx, free := lease.Bound(ctx, q.parent)
	defer free(nil)
	defer q.leave(ctx)
	for {
		t, err := q.newAttempt()
		if err != nil {
			return nil, err
		}
		f, err := l.enter(ctx, t, q)
		if err == nil {
			err = l.settle(ctx, t)
		}
		if err != nil {
			l.withdraw(ctx, t, err)
		}
		switch {
		case err == nil:
			held := l.hold(t)
			e := held.event(EventAcquired, nil)
			e.Waited = q.waitedFor()
			l.tell(e)
			return held, nil
		case ctx.Err() != nil:
			return nil, q.ended(ctx, t, f)
		}
		switch next := q.decide.afterAttempt(t, err, q.waits()); next.step {
		case queueUp:
			if err := q.wait(ctx, t, f); err != nil {
				return nil, err
			}
		case giveUp:
			return nil, next.err
		}
	}
}
