package session

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// breath is how long a command under an outer lock runs on after the outer repolock has
// stopped us. It is shorter than the time until another holder can get that lock.
const breath = time.Second

// allowance says until when the command can run unless it is allowed to go on. An outer
// repolock that loses its lock stops only this process, not our command's group. So under
// an outer lock we extend the command's allowance one moment at a time: the guard stops
// the command soon after we are stopped, whatever --on-lost says about our own lock.
func (s *session) allowance(lock *lease.Set, moment time.Duration) procgroup.Allowance {
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
	if a := s.allowance(s.lock, breath); a != s.allowed {
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
	lock := s.lock
	s.denied.Store(!leased(lock) && s.OnLost != "warn")
	if s.denied.Load() {
		return false
	}
	if s.inner {
		g.Allow(s.allowance(lock, 2*breath)) // there was no beat while we were stopped
	}
	return true
}

// suspended is called when a person stops the command and us, and when that is over.
func (s *session) suspended(over bool) {
	if over {
		s.note(s.lock, events.CommandContinued, events.Event{})
		return
	}
	s.noteSuspended(s.lock)
}

// interruptedGroup is called when the command is stopped although its lock is held, and
// when that is over: no guard watches it, or the lock has to be looked at.
func (s *session) interruptedGroup(why error, over bool) {
	stopped := s.expiry() != procgroup.Nothing
	switch unguarded := errors.Is(why, procgroup.ErrUnguarded); {
	case unguarded && over:
		s.note(s.lock, events.GuardReplaced, events.Event{})
		s.Console.Say("a guard watches the command again%s", map[bool]string{true: ", which goes on"}[stopped])
	case unguarded: // the guard is gone, and can't be replaced
		s.note(s.lock, events.GuardLost, events.Event{Event: replock.Event{Err: why}, Stopped: stopped})
		state := "the command runs on (--on-lost warn)"
		if stopped {
			state = "the command is stopped until one does"
		}
		s.Console.Say("warning: %s; %s", text.Error(why), state)
	case over:
		s.note(s.lock, events.ClocksSettled, events.Event{})
		s.Console.Say("the lock was looked at, and the command goes on")
	default: // the lock looks by itself as soon as the clocks part
		s.note(s.lock, events.ClocksParted, events.Event{})
		s.Console.Say("%v: the command is stopped until the lock was looked at", why)
	}
}

// maxPIDs is how many processes a warning names.
const maxPIDs = 10

// runsOn is called with the processes of the command that can't be stopped, or killed.
func (s *session) runsOn(pids []int, killed bool) {
	lock := s.lock
	s.note(lock, events.CommandRunsOn, events.Event{PIDs: pids, Killed: killed})
	what, who, they := "stopped", "processes", "they run on"
	if killed {
		what = "killed"
	}
	switch len(pids) {
	case 0:
	case 1:
		who, they = "1 process", "it runs on"
	default:
		who = fmt.Sprintf("%d processes", len(pids))
	}
	message := fmt.Sprintf("%s of the command can't be %s", who, what)
	for i, pid := range pids[:min(len(pids), maxPIDs)] {
		message += []string{": pid ", ", "}[min(i, 1)] + strconv.Itoa(pid)
	}
	if len(pids) > maxPIDs {
		message += ", …"
	}
	message += "; " + they
	if lock.Lost() != nil {
		message += " without the lock"
	}
	s.Console.Alert("command_runs_on", message)
}
