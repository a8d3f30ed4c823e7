package replock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/fault"
)

// Do runs work under a lock: it acquires the lock, calls work once, checks the lock
// (Lock.Check), and releases it, even if work panics. The context that work receives ends when
// the lock is lost and when ctx ends. Then work must return.
//
// If the lock is not acquired, work is not called, and the error is that of Exclusive or Shared.
// Otherwise Do returns the error of work, joined with a *LostError if the lock was lost before
// work returned, and with the error of Release. After a *LostError the caller must find out
// whether the work is complete. Do doesn't resume a lost lock. It costs an acquire, a Check and
// a Release.
func (l *Locker) Do(ctx context.Context, mode Mode, operation string, work func(context.Context) error, opts ...AcquireOption) (err error) {
	if mode != Shared && mode != Exclusive {
		return fmt.Errorf("%v: must be Shared or Exclusive", mode)
	}
	lock, err := l.acquire(ctx, mode, operation, opts...)
	if err != nil {
		return err
	}
	defer func() { err = fault.Join(err, lock.Release(ctx)) }()
	err = work(lock.Context())
	if lost := lostBy(ctx, lock.lease.Owner().(*term)); lost != nil && !errors.Is(err, lost) {
		err = fault.Join(lost, err)
	}
	return err
}

// lostBy returns the loss of the lock if it is lost by now, whether noticed or not. If the look
// fails, the lock isn't lost before its lease ends: until then no other holder can enter.
func lostBy(ctx context.Context, k *term) error {
	_ = k.Check(context.WithoutCancel(ctx))
	for k.Lost() == nil && k.Left() <= 0 {
		select {
		case <-k.Done():
		case <-k.Clock.After(10 * time.Millisecond): // a refresh has extended the lease just now
		}
	}
	if lost := k.Lost(); lost != nil {
		return lost.Err
	}
	return nil
}
