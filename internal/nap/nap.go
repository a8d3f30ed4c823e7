// Package nap makes timers that stand still while a simulated process or machine is
// stopped, as real ones do. It serves tests, in testing/synctest bubbles.
package nap

import (
	"sync"
	"time"
)

// Naps are the times in which somebody doesn't run. The zero value is none.
type Naps struct {
	mu   sync.Mutex
	naps []nap // which don't overlap
}

type nap struct{ from, to time.Time }

// Stop begins one, or makes the one that goes on longer.
func (n *Naps) Stop(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	to := now.Add(d)
	if last := len(n.naps) - 1; last >= 0 && n.naps[last].to.After(now) {
		if to.After(n.naps[last].to) {
			n.naps[last].to = to
		}
		return
	}
	n.naps = append(n.naps, nap{now, to})
}

// Slept is for how long they were since then, and left for how much longer one
// goes on.
func (n *Naps) Slept(since time.Time) (slept, left time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for _, one := range n.naps {
		from, to := one.from, one.to
		if from.Before(since) {
			from = since
		}
		if to.After(now) {
			left = max(left, to.Sub(now))
			to = now
		}
		if to.After(from) {
			slept += to.Sub(from)
		}
	}
	return slept, left
}

// Woke reports whether none goes on, nor has for so long.
func (n *Naps) Woke(ago time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for _, one := range n.naps {
		if one.to.Add(ago).After(now) {
			return false
		}
	}
	return true
}

// After fires once d has passed outside of them, and later by what late says where it
// would have fired in one that has so much left. It leaves timers behind but no
// goroutine.
func (n *Naps) After(d time.Duration, late func(left time.Duration) time.Duration) <-chan time.Time {
	fired := make(chan time.Time, 1)
	from := time.Now()
	var fire func()
	fire = func() {
		slept, left := n.Slept(from)
		switch due := time.Until(from.Add(d + slept)); {
		case left > 0:
			time.AfterFunc(left+late(left), fire)
		case due > 0:
			time.AfterFunc(due, fire)
		default:
			fired <- time.Now()
		}
	}
	time.AfterFunc(d, fire)
	return fired
}
