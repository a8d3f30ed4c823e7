// Package stoppedclock makes timers that stand still while a simulated process or machine is
// stopped, as real timers do. It serves tests, in testing/synctest bubbles.
package stoppedclock

import (
	"sync"
	"time"
)

// Stops are the spans of time in which a process or a machine doesn't run. The zero value
// has none.
type Stops struct {
	mu    sync.Mutex
	spans []span // which don't overlap
}

type span struct{ from, to time.Time }

// Stop begins a stop, or prolongs the present one.
func (s *Stops) Stop(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	to := now.Add(d)
	if last := len(s.spans) - 1; last >= 0 && s.spans[last].to.After(now) {
		if to.After(s.spans[last].to) {
			s.spans[last].to = to
		}
		return
	}
	s.spans = append(s.spans, span{now, to})
}

// Stopped returns how long the stops since then have lasted, and how much longer one goes on.
func (s *Stops) Stopped(since time.Time) (stopped, left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, one := range s.spans {
		from, to := one.from, one.to
		if from.Before(since) {
			from = since
		}
		if to.After(now) {
			left = max(left, to.Sub(now))
			to = now
		}
		if to.After(from) {
			stopped += to.Sub(from)
		}
	}
	return stopped, left
}

// Woke reports whether no stop goes on, nor has ended less than ago before now.
func (s *Stops) Woke(ago time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, one := range s.spans {
		if one.to.Add(ago).After(now) {
			return false
		}
	}
	return true
}

// After fires once d has passed outside of stops. A timer that would fire in a stop fires
// late(left) after its end; left is how much of the stop is left. After leaves timers behind
// but no goroutine.
func (s *Stops) After(d time.Duration, late func(left time.Duration) time.Duration) <-chan time.Time {
	fired := make(chan time.Time, 1)
	from := time.Now()
	var fire func()
	fire = func() {
		stopped, left := s.Stopped(from)
		switch due := time.Until(from.Add(d + stopped)); {
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
