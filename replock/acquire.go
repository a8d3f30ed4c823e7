package replock

import (
	"context"
	"errors"

	"github.com/repolock/repolock/internal/lease"
)

// acquire takes a lock: docs/protocol.md, Acquire. It tries until it has the lock, until another
// holder certainly has it, or until the store can't show which. A try that fails withdraws all its
// objects. Its findings name the locks that conflict. After each try, again decides what follows.
func (l *Locker) acquire(ctx context.Context, mode Mode, operation string, opts ...AcquireOption) (*Lock, error) {
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
		t, err := q.newTry()
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
			return newLock(held), nil
		case ctx.Err() != nil:
			return nil, q.ended(ctx, t, f)
		}
		switch next := q.again.afterTry(t, err, q.waits()); next.step {
		case queueUp:
			if err := q.wait(ctx, t, f); err != nil {
				return nil, err
			}
		case giveUp:
			return nil, next.err
		}
	}
}

// errDoubt is the error of a look in which every conflicting lock is doubtful.
var errDoubt = errors.New("perhaps stale")

// settle returns nil if a try whose last look found no conflict can be held.
func (l *Locker) settle(ctx context.Context, t *try) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return l.holdable(t)
}

// heldError returns the error that names the conflicting locks.
func (l *Locker) heldError(t *try, f findings) *HeldError {
	in := f.live
	if len(in) == 0 {
		in = f.doubtful
	}
	return &HeldError{Mode: t.mode, Holders: l.infos(in, f), More: f.more}
}
