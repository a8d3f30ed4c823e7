package replock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Do runs work under a lock: it acquires the lock, runs work once, and releases the lock,
// even if work panics. The context that work gets ends when the lock is lost, and when ctx
// ends. Then work must stop.
//
// If the lock isn't acquired, work isn't run, and the error is that of Exclusive or
// Shared. Otherwise the error is the one of work, joined with a *LostError if the lock was
// lost before work returned (whether work is complete is for the caller to find out),
// and with the one of Release, after which an object is left to expire. Do doesn't
// resume a lost lock. It confirms the lock when work has returned ([Lock.Confirm]).
func (l *Locker) Do(ctx context.Context, mode Mode, operation string, work func(context.Context) error, opts ...AcquireOption) (err error) {
	if mode != Shared && mode != Exclusive {
		return fmt.Errorf("%v: must be Shared or Exclusive", mode)
	}
	lock, err := l.acquire(ctx, mode, operation, append([]AcquireOption{Parent(ctx)}, opts...)...)
	if err != nil {
		return err
	}
	defer func() { err = join(err, lock.Release(ctx)) }()
	err = work(lock.Context())
	if lost := lock.lostBy(ctx); lost != nil && !errors.Is(err, lost) {
		err = join(lost, err)
	}
	return err
}

// lostBy returns the loss of the lock if it was lost by now, noticed or not. If the store
// can't be reached, no other holder was let in: the lease lasts.
func (k *Lock) lostBy(ctx context.Context) error {
	_ = k.Confirm(context.WithoutCancel(ctx))
	for k.lost.Load() == nil && k.Left() <= 0 {
		select {
		case <-k.done:
		case <-k.l.opts.Clock.After(10 * time.Millisecond): // or it was refreshed in this moment
		}
	}
	if lost := k.lost.Load(); lost != nil {
		return lost
	}
	return nil
}
