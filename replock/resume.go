package replock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// Pauses between the tries of a resume.
const (
	firstResumePause = 500 * time.Millisecond
	lastResumePause  = 5 * time.Second
)

// Resume takes a lock that was lost for want of a refresh, and that nobody has
// passed since, as a new Lock: after an outage of the store, or a suspend of the
// machine. It tries until the lock is held again, or the loss is definite (a
// *LostError with Definite set), or ctx ends. The context of the new lock is
// derived from what the lost lock's was (see Parent), not from ctx.
//
// Other clients of the wire format don't remove an expired lock that they pass.
// Where such clients run too, a lock must not be resumed.
func (k *Lock) Resume(ctx context.Context) (*Lock, error) {
	if !k.resuming.CompareAndSwap(false, true) {
		return nil, errors.New("resuming a lock that is being resumed")
	}
	defer k.resuming.Store(false)
	lost := k.lost.Load()
	switch {
	case k.releasing.Load():
		return nil, ErrReleased
	case lost == nil:
		return nil, fmt.Errorf("resuming a lock that is held: %s", k.t.flag.key)
	case lost.Definite:
		return nil, lost
	case k.resumed.Load():
		return nil, errors.New("resuming a lock that was resumed before")
	}
	// All tries of this resume are ours, whatever is left of them.
	all := k.t.mine
	for pause := firstResumePause; ; pause = min(2*pause, lastResumePause) {
		next, err := k.resume(ctx, &all)
		if err == nil {
			k.resumed.Store(true)
			next.tell(EventResumed, nil)
			return next, nil
		}
		var lost *LostError
		if errors.As(err, &lost) && lost.Definite {
			k.lost.Store(lost)
			k.tell(EventLost, lost)
			return nil, lost
		}
		if errors.Is(err, ErrReleased) {
			return nil, err
		}
		if clock.Sleep(ctx, k.l.opts.Clock, k.l.jitter(pause)) != nil {
			return nil, fmt.Errorf("resuming the %s lock: %w", k.t.mode, err)
		}
	}
}

// resume is one try: PROTOCOL.md, Hold. A flag is put under a new key, because a
// late delete of the old one may still be on its way. The lock is resumed only
// if the old flag is still there, which proves that nobody has passed, since
// whoever passes deletes it first; and if nothing conflicts with the new one.
func (k *Lock) resume(ctx context.Context, all *mine) (*Lock, error) {
	l := k.l
	t, err := l.newTry(k.t.mode, k.t.operation, *all)
	if err != nil {
		return nil, err
	}
	*all = t.mine
	t.body.AcquiredAt, t.body.AcquiredID = k.t.body.AcquiredAt, cmp.Or(k.t.body.AcquiredID, k.t.id)
	t.exclusive.etag, t.parent = k.t.exclusive.etag, k.t.parent
	t.place = "" // before all who wait: they wait for us
	giveUp := func(err error) (*Lock, error) {
		// Unless all is over, lock.exclusive stays: the next try needs it.
		var lost *LostError
		if !errors.As(err, &lost) && ctx.Err() == nil && !k.releasing.Load() {
			t.exclusive.maybe = false
		}
		l.withdraw(ctx, t, err)
		return nil, err
	}

	l.date(t)
	if err := l.putFlag(ctx, t); err != nil {
		return giveUp(err)
	}
	if t.mode == Exclusive {
		if err := k.reclaim(ctx, t); err != nil {
			return giveUp(err)
		}
	}
	if err := k.lookAgain(ctx, t); err != nil {
		return giveUp(err)
	}
	if err := k.unpassed(ctx, t); err != nil {
		return giveUp(err)
	}
	// The new flag stands; the old one has done its service. If it can't be
	// deleted it is stale, and others may remove it.
	if err := l.takeDownFlag(ctx, k.t); err != nil {
		l.opts.Logger.Warn("the flag of a resumed lock is left to expire", "key", k.t.flag.key, "err", err)
	}
	if l.opts.Clock.Elapsed() >= t.deadline {
		return giveUp(k.broken(k.t.flag.key, "resuming it took longer than its lease"))
	}
	if k.releasing.Load() {
		return giveUp(ErrReleased)
	}
	return l.hold(t, k.fence), nil
}

// unpassed returns nil if the old flag is still there, and was written so early
// that nobody can have removed it before: a refresh that was applied late, after
// somebody had passed, would put it back.
func (k *Lock) unpassed(ctx context.Context, t *try) error {
	old, err := k.l.find(ctx, k.t.flag.key)
	if err != nil {
		return err
	}
	if old == nil || old.Size == 0 {
		return k.broken(k.t.flag.key, "it expired, and somebody else has been let in or it was broken")
	}
	fresh, err := k.l.find(ctx, t.flag.key)
	if err != nil {
		return err
	}
	seen := k.l.opts.Clock.Elapsed()
	if fresh == nil {
		return fmt.Errorf("%s: not listed after it was written", t.flag.key)
	}
	if old.ModTime.IsZero() || fresh.ModTime.IsZero() {
		return k.broken(k.t.flag.key, "it expired, and the store doesn't tell when it was written")
	}
	if !k.l.store.Properties().StoreClock && old.ETag != k.t.flag.etag {
		return k.broken(k.t.flag.key, "it expired, and the store has no clock of its own to tell when it was refreshed")
	}
	// Both mod times are the store's; what is between them is taken off the time
	// when the new flag was seen, which is not before it was stamped. (When its put
	// was answered may be: an earlier send of it may have been applied since.) The
	// store rounds each of them down, so that the difference may be too large by as
	// much as the margin allows for.
	written := seen - fresh.ModTime.Sub(old.ModTime) + margin
	if reapable := k.sent() + k.l.opts.TTL; written > reapable {
		return k.broken(k.t.flag.key, "it expired, and a late refresh put it back")
	}
	return nil
}

// sent is when the last refresh was sent that was answered in time.
func (k *Lock) sent() time.Duration { return k.Deadline() - k.l.schedule.Deadline }

// reclaim puts our new id into lock.exclusive, which must still be ours: another
// client's break-lock deletes nothing else.
func (k *Lock) reclaim(ctx context.Context, t *try) error {
	o := &object{key: t.exclusive.key, etag: t.exclusive.etag}
	probe := &Lock{l: k.l, t: t}
	probe.deadline.Store(int64(t.deadline))
	probe.now.Store(&t.st)
	t.exclusive.maybe = true
	if err := probe.renew(ctx, o, false); err != nil {
		return err
	}
	t.claimed(o.etag)
	return nil
}

// lookAgain is acquire's look, repeated to give a contender that is about to withdraw more
// time for it than it takes. One that holds its lock won't, and has passed.
func (k *Lock) lookAgain(ctx context.Context, t *try) error {
	l := k.l
	s := sight{}
	for again := 0; ; again++ {
		f, err := l.look(ctx, t, s)
		if err != nil {
			return err
		}
		if l.opts.Clock.Elapsed() >= t.deadline {
			return errLate
		}
		if len(f.live)+len(f.doubtful)+len(f.vanished) == 0 {
			if err := l.reap(ctx, t, f); err != nil {
				return err
			}
			if t.mode == Exclusive && !t.exclusive.listed {
				return k.broken(t.exclusive.key, "it was deleted or replaced")
			}
			t.passed = f.exclusive
			return nil
		}
		f.live = slices.Concat(f.live, f.doubtful, f.vanished)
		if again == 2*maxAgain || slices.ContainsFunc(f.live, func(e *entry) bool { return !l.mayWithdraw(t, f, e) }) {
			lost := k.broken(k.t.flag.key, "it expired, and another is in its place")
			lost.Err = l.heldError(t, f)
			return lost
		}
		if err := clock.Sleep(ctx, l.opts.Clock, l.jitter(firstAgain<<again)); err != nil {
			return err
		}
	}
}
