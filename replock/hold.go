package replock

import (
	"context"
	"errors"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/replock/internal/verdict"
)

// hold begins to refresh a lock that was just acquired or resumed.
func (l *Locker) hold(t *attempt) *term {
	k := &term{others: newOthers(t)}
	k.begin(l, t)
	k.proven = k.underSecond
	k.Term = lease.New(lease.Terms{
		Schedule: l.times, Clock: l.opts.Clock, Sent: t.sent, Seen: t.seen, Parent: t.parent, Drain: k.timeout(), Jitter: l.earlier,
		Attempt: k.refresh, Watch: k.watch, Failed: k.failed, Extended: func() { k.tell(EventRefreshed, nil) },
		Loss: k.loss, Lost: func(err error) { k.tell(EventLost, err) }, // a Flush after the context's end waits for this event
	})
	k.Begin()
	return k
}

// Check implements Lock.Check.
func (k *term) Check(ctx context.Context) error {
	err := k.look(ctx)
	if errors.Is(err, errMightWithdraw) && clock.Sleep(ctx, k.l.opts.Clock, verdict.Transient) == nil {
		err = k.look(ctx)
	}
	if errors.Is(err, ErrLost) {
		k.Fail(err)
	}
	if errors.Is(err, errMightWithdraw) {
		err = nil // our objects are stored, and their owners might still withdraw the new conflicting ones
	}
	return k.usable(k.State(err))
}

// refresh is one attempt to renew the lease of a held lock: docs/evidence/protocol.md, Refresh. If one of our objects
// is gone before its next version replaces it, the lock was broken, and is lost for good. A failed attempt can have
// renewed one of the two objects. Then the next attempt renews only the other one, unless anew is set. refresh itself
// doesn't change the lock: see refresh.Renewal.
func (k *term) refresh(ctx context.Context, anew bool) (refresh.Renewal, error) {
	began := clock.Read(k.l.opts.Clock)
	flag, pointer := k.objects()
	all := k.ofMode(&flag, &pointer)
	whole := true
	for _, o := range all {
		o.renewed = o.renewed && !anew
		whole = whole && !o.renewed
	}
	errs := k.renewProven(ctx, all)
	for _, err := range errs {
		if lost, ok := errors.AsType[*LostError](err); ok {
			return refresh.Renewal{}, refresh.Stop(lost)
		}
	}
	renewed := refresh.Renewal{Sent: flag.sent}
	if k.t.mode == Exclusive {
		renewed.Sent = min(flag.sent, pointer.sent)
	}
	err := fault.Join(errs...)
	renewed.Commit = func() {
		k.commit(flag, pointer)
		if whole && err == nil {
			k.saw(began)
		}
	}
	return renewed, err
}
