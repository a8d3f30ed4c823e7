package main

import (
	"time"

	"github.com/repolock/repolock/internal/child"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/replock"
)

// allowance is what the guard goes by; see until.
func (s *session) allowance(lock *replock.Lock, moment time.Duration) child.Allowance {
	a := child.Allow(s.until(lock, moment))
	if s.inner && s.OnLost == "warn" {
		return a // which is over soon, and with which the clocks never part
	}
	a.Seen = lock.Seen()
	return a
}

// parted is told when the guard has stopped the command until the lock was looked at, and
// when the command goes on. The lock itself looks as soon as the clocks part.
func (s *session) parted(why error, over bool) {
	lock, now := s.lock.Load(), clock.System{}.Now()
	s.locker.Later(func() { s.audit.parted(lock, now, over) })
	if over {
		s.report.say("the lock was looked at, and the command goes on")
		return
	}
	s.report.say("%v: the command is stopped until the lock was looked at", why)
}
