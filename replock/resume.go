package replock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
)

// The pauses between the attempts of a resume grow from firstResumePause to lastResumePause.
const (
	firstResumePause = 500 * time.Millisecond
	lastResumePause  = 5 * time.Second
)

// Reacquire implements lease.Owner: it returns the term that follows a lost one.
func (k *term) Reacquire(ctx context.Context) (lease.Owner, error) {
	// Objects that earlier attempts of this resume have put are ours, even if they couldn't be deleted.
	all := k.own()
	for pause := firstResumePause; ; pause = min(2*pause, lastResumePause) {
		next, err := k.resume(ctx, &all)
		if err == nil {
			return next, nil
		}
		if lost, ok := errors.AsType[*LostError](err); ok && lost.Definite {
			k.Lose(lossOf(lost))
			k.tell(EventLost, lost)
			return nil, lost
		}
		if !k.Releasing() && clock.Sleep(ctx, k.l.opts.Clock, k.l.jitter(pause)) == nil {
			continue
		}
		if k.Releasing() {
			return nil, ErrReleased
		}
		return nil, &fault.Error{Doing: fmt.Sprintf("resuming the %s lock", k.t.mode), Err: err, Class: whyEnded(ctx)}
	}
}

// resume is one attempt: docs/evidence/protocol.md, Resume. It puts a flag under a new key, because the store might
// still apply a late delete of the old flag. The old flag must still be stored, because every acquirer deletes a stale
// flag before it takes the lock. And no lock may conflict with the new flag.
func (k *term) resume(ctx context.Context, all *ownAttempts) (*term, error) {
	l := k.l
	t, err := l.newAttempt(k.t.mode, k.t.operation, *all)
	if err != nil {
		return nil, err
	}
	*all = t.ownAttempts
	t.body.AcquiredAt, t.body.AcquiredID = k.t.body.AcquiredAt, cmp.Or(k.t.body.AcquiredID, k.t.id)
	t.pointer.etag, t.parent = k.t.pointer.etag, k.t.parent
	t.place, t.fence = wire.FirstPlace, k.t.fence
	giveUp := func(err error) (*term, error) {
		// Keep lock.exclusive for the next attempt, unless this was the last one.
		if !errors.Is(err, ErrLost) && ctx.Err() == nil && !k.Releasing() {
			t.pointer.maybe = false
		}
		l.withdraw(ctx, t, err)
		return nil, err
	}

	l.date(t)
	for _, step := range []func(context.Context, *attempt) error{l.putFlag, k.reclaim, k.lookAgain, k.unreaped} {
		if err := step(ctx, t); err != nil {
			return giveUp(err)
		}
	}
	// An old flag that can't be deleted is stale, so others can remove it.
	if err := l.takeDownFlag(ctx, k.t); err != nil {
		l.opts.Logger.Warn("the flag of a resumed lock is left to expire", "key", k.t.flag.key, "err", err)
	}
	if err := k.dropSeconds(ctx, true); err != nil {
		l.opts.Logger.Warn("a second flag of a resumed lock is left to expire", "err", err)
	}
	if l.opts.Clock.Elapsed() >= t.deadline {
		return giveUp(k.broken(k.t.flag.key, "resuming it took longer than its lease"))
	}
	if k.Releasing() {
		return giveUp(ErrReleased)
	}
	return l.hold(t), nil
}

// unreaped returns nil if no acquirer has reaped the old flag. The flag must still be stored, and by the store's clock
// and by ours it must have been written before it became stale. If a late refresh has put it back after it was reaped,
// its mod time is later.
func (k *term) unreaped(ctx context.Context, t *attempt) error {
	old, err := k.l.find(ctx, k.t.flag.key)
	if err != nil {
		return err
	}
	if old == nil || old.Size == 0 {
		return k.broken(k.t.flag.key, "it expired, and was then removed by another acquirer or by break-lock")
	}
	if flag, _ := k.objects(); old.ETag == "" || old.ETag != flag.etag {
		if err := k.ours(ctx, &flag); err != nil {
			return err
		}
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
		return k.broken(k.t.flag.key, "it expired, and the store doesn't report when it was written")
	}
	if !k.l.store.Properties().StoreClock && old.ETag != k.t.flag.etag {
		return k.broken(k.t.flag.key, "it expired, and the store has no clock of its own, so it is unknown when it was refreshed")
	}
	k.sighted(old.ETag, old.ModTime)
	if k.l.store.Properties().StoreClock && k.flags.unbroken(old.ETag, old.ModTime) {
		return nil // whatever the clocks show
	}
	if k.l.store.Properties().StoreClock && (k.dated.Load() == 0 || k.reapable(old.ModTime)) {
		return k.broken(k.t.flag.key, "it expired by the store's clock, and a late refresh might have put it back")
	}
	// The store stamped the new flag before we saw it. It might have done so after its put was answered, because it
	// might have applied an earlier send since. The store truncates both mod times, and the margin allows for that.
	written := seen - fresh.ModTime.Sub(old.ModTime) + verdict.Margin
	if reapable := k.sent() + k.l.opts.TTL; written > reapable {
		return k.broken(k.t.flag.key, "it expired, and a late refresh put it back")
	}
	return nil
}

// reclaim writes the new id into lock.exclusive, which must still be ours. The break-lock command of other clients
// deletes only lock.exclusive.
func (k *term) reclaim(ctx context.Context, t *attempt) error {
	if t.mode == Shared {
		return nil
	}
	o := &object{key: t.pointer.key, etag: t.pointer.etag}
	var r renewer
	r.begin(k.l, t)
	t.pointer.maybe = true
	if err := r.renew(ctx, o, false); err != nil {
		return err
	}
	t.claimed(o.etag)
	return nil
}
