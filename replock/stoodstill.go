package replock

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// errStoodStill is errLate for a pause that only the store's clock shows.
var errStoodStill = fault.New(errLate, "this machine stood still while it acquired the lock, or the store's clock was set ahead")

// slept returns errStoodStill if the store's clock has advanced by more than ours since our flag
// was put, or between two looks of a try. Then this machine stood still, its own clocks didn't
// count that, and others can have seen its flag as stale. A server's Date can come from a proxy
// whose clock differs from the mod times. So the first page is compared with the answer to the put,
// if that has a time.
func (l *Locker) slept(t *try, page store.Page, sent, answered time.Duration) error {
	if t.polls || page.Now.IsZero() || !l.store.Properties().StoreClock {
		return nil
	}
	was := t.first
	if was.now.IsZero() {
		t.first, was = pageTime{now: page.Now, asked: sent}, t.raised
	}
	if flag, _ := inPage(page, t.flag.key); was.now.IsZero() && flag != nil {
		was = pageTime{now: flag.ModTime, asked: t.sent}
	}
	if !was.now.IsZero() && was.stood(page.Now, answered) > margin {
		return errStoodStill
	}
	return nil
}

// stoodStill refreshes the lock at once if this machine stood still, because then others can have
// seen the lock as stale. Two things show that: the store's clock has advanced by more than ours
// between two pages, or our clocks have parted since the lock was last seen.
func (k *term) stoodStill(ctx context.Context, page store.Page, began clock.Reading, answered time.Duration, written time.Time) error {
	now, last := pageTime{now: page.Now, asked: began.Elapsed, leased: k.sent()}, k.others.last
	told := !now.now.IsZero() && !last.now.IsZero() && k.l.store.Properties().StoreClock
	if !(told && last.stood(now.now, answered) > margin) && !began.Parted(k.Seen()) {
		k.saw(began)
		if !now.now.IsZero() {
			k.others.last = now
		}
		return nil
	}
	var ended time.Time
	if told {
		ended = last.now.Add(last.leased - last.asked + k.l.opts.TTL)
		// A refresh since the last page was applied in time.
		if next := written.Add(k.l.opts.TTL); written.Before(ended.Add(-margin)) && next.After(ended) {
			ended = next
		}
	}
	if lost := k.overdue(now.now, ended); lost != nil {
		lost.Definite = written.After(ended) // otherwise it can be resumed if no holder has passed
		return lost
	}
	err := k.reassure(ctx, ended)
	if err == nil && !now.now.IsZero() {
		k.others.last = now
	}
	return err
}

// overdue returns a *LostError if the lease had ended on the store's clock, unless If-Match is
// relied on. Otherwise another holder can have deleted our flag just before a refresh puts it back,
// and have released its lock since, and no later look would show that. A refresh with If-Match puts
// nothing back.
func (k *term) overdue(now, ended time.Time) *LostError {
	if now.IsZero() || ended.IsZero() || now.Before(ended.Add(-margin)) || k.l.conditions.match.holds() {
		return nil
	}
	return k.broken(k.t.flag.key, "this machine stood still, and the lease had ended before it was refreshed")
}

// reassure returns nil if the lock is held although this machine might have stood still. It renews
// the lease first, because another acquirer could pass a lock just after it was looked at. Then it
// looks for others as an acquirer does, because one that has passed might have deleted our flag
// just before the refresh put it back. ended is when the lease ends on the store's clock without
// the refresh, or zero if that is unknown.
func (k *term) reassure(ctx context.Context, ended time.Time) error {
	began := clock.Read(k.l.opts.Clock)
	if err := k.Renew(ctx); err != nil {
		return err
	}
	flag, exclusive := k.objects()
	t := &try{
		mode: k.t.mode, operation: k.t.operation, id: k.t.id, ownTries: k.t.ownTries,
		flag: flag, exclusive: exclusive, trips: k.t.trips, deadline: k.end(),
	}
	switch err := k.lookAgain(ctx, t); { // our flag is live, so a later acquirer withdraws
	case errors.Is(err, errUnlisted):
		return k.broken(flag.key, "this machine stood still, and another client deleted the lock")
	case err != nil:
		return err
	}
	if lost := k.overdue(t.first.now, ended); lost != nil {
		return lost
	}
	// Another acquirer can have entered and left while a look had yet to reach the page of our
	// flag.
	if err := k.confirm(ctx, &flag); err != nil {
		return err
	}
	k.Saw(began)
	return nil
}
