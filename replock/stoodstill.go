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
var errStoodStill error = alsoError{errors.New("this machine stood still while it took the lock, or the store's clock went ahead"), errLate}

// slept returns errStoodStill if the store's clock has advanced further since our flag was put,
// or between two looks of a try, than ours can have: this machine stood still, its own clocks
// did not count it, and its flag can be stale for others by now. A server's Date can be that of
// a proxy: a try that finds it as far from the flag's mod time as an earlier one goes on.
func (l *Locker) slept(t *try, page store.Page, sent, answered time.Duration) error {
	if t.polls || page.Now.IsZero() || !l.store.Properties().StoreClock {
		return nil
	}
	still := false
	if !t.first.now.IsZero() {
		still = t.first.stood(page.Now, answered) > margin
	} else {
		t.first = pageTime{now: page.Now, asked: sent}
		if flag, _ := inPage(page, t.flag.key); flag != nil && !flag.ModTime.IsZero() {
			still = !l.skews.known(pageTime{now: flag.ModTime, asked: t.sent}.stood(page.Now, answered))
		}
	}
	if still {
		return errStoodStill
	}
	return nil
}

// skews are the recent differences between two clocks of the store.
type skews struct {
	mu   sync.Mutex
	last []time.Duration
}

// maxSkews is for how many servers behind one name the differences are remembered.
const maxSkews = 8

// known reports whether an earlier difference was about as large, and remembers this one. After a
// try that finds the clocks together, earlier differences count as pauses of the machine.
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

// stoodStill refreshes the lock at once if the store's clock has advanced further between two
// pages than our clocks have: this machine stood still, and the lock can be stale for others. If
// a refresh that had looked before the pause wrote the flag after the lease had ended on the
// store's clock, another holder can have come and gone in between: the lock is lost. A refresh
// with an If-Match that is relied on cannot do that.
func (k *Lock) stoodStill(ctx context.Context, page store.Page, began clock.Reading, answered time.Duration, written time.Time) error {
	now, last := pageTime{now: page.Now, asked: began.Elapsed, leased: k.sent()}, k.others.last
	still := last.stood(now.now, answered)
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

// reassure returns nil if the lock is held although this machine might have stood still. It
// renews the lease, since another acquirer can pass a lock that is only looked at the moment
// after. And it looks for others as an acquirer does, since one that has passed might have
// deleted our flag just before the refresh put it back.
func (k *Lock) reassure(ctx context.Context) error {
	began := clock.Read(k.l.opts.Clock)
	if err := k.refresher.Now(ctx, k.done); err != nil {
		return err
	}
	flag, exclusive := k.objects()
	t := &try{
		mode: k.t.mode, operation: k.t.operation, id: k.t.id, ownTries: k.t.ownTries,
		flag: flag, exclusive: exclusive, trips: k.t.trips, deadline: k.Deadline(),
	}
	if err := k.lookAgain(ctx, t); err != nil { // our flag is live: a later acquirer withdraws
		return err
	}
	k.seen.Store(&began)
	return nil
}
