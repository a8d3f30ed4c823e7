package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// errStoodStill is errLate by the store's clock alone.
var errStoodStill error = stoodStill{unsure{errors.New("this machine stood still while it took the lock, or the store's clock went ahead")}}

type stoodStill struct{ unsure }

func (e stoodStill) Is(target error) bool { return target == errLate || e.unsure.Is(target) }

// slept returns errStoodStill if the store's clock has gone further since our flag was put, or
// between two looks of an attempt, than ours can have: this machine stood still, and its own
// clocks didn't count it. A lock isn't granted then, because its flag may be stale by now for
// others.
func (l *Locker) slept(t *try, page store.Page, sent, answered time.Duration) error {
	if t.polls || page.Now.IsZero() || !l.store.Properties().StoreClock {
		return nil
	}
	if t.first.now.IsZero() {
		t.first = told{now: page.Now, asked: sent}
		return l.sleptSincePut(t, page, answered)
	}
	if page.Now.Sub(t.first.now) > answered-t.first.asked+margin {
		return errStoodStill
	}
	return nil
}

// sleptSincePut compares the first page's time with the mod time of our flag. They may be of two
// clocks, because a server's Date may be that of a proxy: an attempt that finds them apart by
// as much as one before it goes on.
func (l *Locker) sleptSincePut(t *try, page store.Page, answered time.Duration) error {
	i := slices.IndexFunc(page.Objects, func(o store.Object) bool { return o.Key == t.flag.key })
	if i < 0 || page.Objects[i].ModTime.IsZero() {
		return nil
	}
	apart := page.Now.Sub(page.Objects[i].ModTime) - (answered - t.sent)
	if !l.skews.known(apart) {
		return errStoodStill
	}
	return nil
}

// skews are by how much two clocks of the store were apart, of late.
type skews struct {
	mu   sync.Mutex
	last []time.Duration
}

// maxSkews is for how many servers behind one name their clocks are remembered.
const maxSkews = 8

// known reports whether one was about as large, and remembers this one. Where an attempt finds
// the clocks together, those before were no skew: the machine had stood still.
func (s *skews) known(apart time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if apart <= margin {
		s.last = nil
		return true
	}
	known := slices.ContainsFunc(s.last, func(one time.Duration) bool { return (one - apart).Abs() <= margin })
	s.last = append(s.last, apart)
	s.last = s.last[max(0, len(s.last)-maxSkews):]
	return known
}

// stoodStill deals with a machine that didn't run for a time which its own clocks don't
// count: the store's has gone further between two pages than they can have. Then the lock
// is refreshed at once, since it may already be stale for others. If its flag was written
// after the lease had ended on the store's clock, by a refresh that had looked before and
// put after the pause, then another holder may have come and gone in between: it is lost.
// Where If-Match can be relied on no refresh does that.
func (k *Lock) stoodStill(ctx context.Context, page store.Page, began clock.Reading, answered time.Duration, written time.Time) error {
	now, last := told{now: page.Now, asked: began.Elapsed, leased: k.sent()}, k.others.last
	still := now.now.Sub(last.now) - (answered - last.asked)
	if now.now.IsZero() || last.now.IsZero() || still <= margin || !k.l.store.Properties().StoreClock {
		k.saw(began)
		if !now.now.IsZero() {
			k.others.last = now
		}
		return nil
	}
	ended := last.now.Add(last.leased - last.asked + k.l.opts.TTL)
	if written.After(ended) && !k.l.conditions.match.holds() {
		return k.broken(k.t.flag.key, fmt.Sprintf("this machine stood still for %v, and the lease had ended before it was refreshed", still.Round(time.Second)))
	}
	err := k.reassure(ctx)
	if err == nil {
		k.others.last = now
	}
	return err
}

// reassure returns nil if the lock is held although this machine may have stood still:
// then it isn't known how much of the lease was left. It renews the lease, since to
// find the lock in its place isn't enough: another acquirer may pass it the moment
// after. And it looks for others, as an acquirer does when it has put its flag, since
// one that has passed may have deleted ours just before the refresh put it back.
func (k *Lock) reassure(ctx context.Context) error {
	began := clock.Read(k.l.opts.Clock)
	if err := k.refresher.Now(ctx, k.done); err != nil {
		return err
	}
	flag, exclusive := k.objects()
	t := &try{
		mode: k.t.mode, operation: k.t.operation, id: k.t.id, mine: k.t.mine,
		flag: flag, exclusive: exclusive, trips: k.t.trips, deadline: k.Deadline(),
	}
	if err := k.lookAgain(ctx, t); err != nil { // our flag is live: who comes now withdraws

		return err
	}
	k.seen.Store(&began)
	return nil
}
