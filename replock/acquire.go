package replock

import (
	"context"
	"errors"

	"github.com/repolock/repolock/internal/lease"
)

// acquire takes a lock: docs/protocol.md, Acquire. It tries until it has the lock, until another
// holder certainly has it, or until the store can't show which. After each try, again decides what
// follows.
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
		held, f, err := l.attempt(ctx, t, q)
		switch {
		case err == nil:
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

// attempt runs the protocol once. If it fails, it withdraws all objects of the try. The findings
// name the locks that conflict.
func (l *Locker) attempt(ctx context.Context, t *try, q *queue) (lock *term, f findings, err error) {
	if f, err = l.enter(ctx, t, q); err == nil {
		lock, err = l.settle(ctx, t)
	}
	if err != nil {
		l.withdraw(ctx, t, err)
	}
	return lock, f, err
}

// settle makes a held lock of a try whose last look found no conflict.
func (l *Locker) settle(ctx context.Context, t *try) (*term, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := l.holdable(t); err != nil {
		return nil, err
	}
	return l.hold(t), nil
}

// heldError returns the error that names the conflicting locks.
func (l *Locker) heldError(t *try, f findings) *HeldError {
	in := f.live
	if len(in) == 0 {
		in = f.doubtful
	}
	return &HeldError{Mode: t.mode, Holders: l.infos(in, f), More: f.more}
}
