package session

import (
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup"
)

// breath is how long a command under an outer lock runs on after the outer repolock has
// stopped us. It is shorter than the time until another holder can get that lock.
const breath = time.Second

// allowance says until when the command can run unless it is allowed to go on. An outer
// repolock that loses its lock stops only this process, not our command's group. So under
// an outer lock we extend the command's allowance one moment at a time: the guard stops
// the command soon after we are stopped, whatever --on-lost says about our own lock.
func (s *session) allowance(lock Lock, moment time.Duration) procgroup.Allowance {
	end := lock.Deadline()
	if s.inner {
		soon := clock.System{}.Elapsed() + moment
		if s.OnLost == "warn" {
			return procgroup.Allow(soon) // the lock's last look doesn't matter
		}
		end = min(end, soon)
	}
	a := procgroup.Allow(end)
	a.Seen = lock.Seen()
	return a
}

// allow lets the command run until the lock's deadline.
func (s *session) allow() {
	if a := s.allowance(s.current(), breath); a != s.allowed {
		s.allowed = a
		s.group.Allow(a)
	}
}

// expiry is what the guard does when the allowance ends.
func (s *session) expiry() procgroup.Expiry {
	if s.inner {
		return procgroup.Stop
	}
	return map[string]procgroup.Expiry{"pause": procgroup.Stop, "term": procgroup.Kill, "kill": procgroup.Kill, "warn": procgroup.Nothing}[s.OnLost]
}

// mayContinue reports whether the command can go on when the shell continues us (fg, bg).
func (s *session) mayContinue(g *procgroup.Group) bool {
	lock := s.current()
	s.denied.Store(!leased(lock) && s.OnLost != "warn")
	if s.denied.Load() {
		return false
	}
	if s.inner {
		g.Allow(s.allowance(lock, 2*breath)) // there was no beat while we were stopped
	}
	return true
}
