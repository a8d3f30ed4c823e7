package replock

import (
	"errors"
	"slices"
	"sync"
	"time"

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
