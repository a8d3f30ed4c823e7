package session

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/procgroup/guard"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// breath bounds how long a command under an outer lock runs on after the outer repolock has stopped this process. No
// other holder can acquire the outer lock within that time.
const breath = time.Second

// allowance returns the time until which the command can run without another allowance.
//
// An outer repolock that loses its lock stops only this process, not the group of our command. So under an outer
// lock the allowance lasts only for a moment. The guard stops the command soon after this process is stopped,
// whatever --on-lost demands for our own lock.
func (s *session) allowance(moment time.Duration) procgroup.Allowance {
	end := s.lock.Deadline()
	if s.inner {
		soon := clock.System{}.Elapsed() + moment
		if s.OnLost == "warn" {
			return procgroup.Allow(soon) // without a look at the clocks
		}
		end = min(end, soon)
	}
	a := procgroup.Allow(end)
	a.Seen = s.lock.Seen()
	return a
}

// allow lets the command run until the lock's deadline.
func (s *session) allow() {
	if a := s.allowance(breath); a != s.allowed {
		s.allowed = a
		s.group.Allow(a)
	}
}

// expiry is the guard's action at the end of the allowance.
func (s *session) expiry() procgroup.Expiry {
	if s.inner {
		return procgroup.Stop
	}
	return map[string]procgroup.Expiry{"pause": procgroup.Stop, "term": procgroup.Kill, "kill": procgroup.Kill, "warn": procgroup.Nothing}[s.OnLost]
}

// mayContinue reports whether the command can go on when the shell continues this process (fg, bg).
func (s *session) mayContinue(g *procgroup.Group) bool {
	s.denied.Store(!s.leased() && s.OnLost != "warn")
	if s.denied.Load() {
		return false
	}
	if s.inner {
		g.Allow(s.allowance(2 * breath)) // enough until the next beat
	}
	return true
}

// suspended records that a person has stopped the command and this process or, if over, has continued them.
func (s *session) suspended(over bool) {
	if over {
		s.note(events.CommandContinued, events.Event{})
		return
	}
	s.note(events.CommandSuspended, events.Event{})
	s.flush() // before this process is stopped, too
}

// interruptedGroup reports that no guard watches the command, or that repolock must look at the lock. If over is set,
// it reports the end of that state. Meanwhile the command is stopped, except with --on-lost warn.
func (s *session) interruptedGroup(why error, over bool) {
	stopped := s.expiry() != procgroup.Nothing
	switch unguarded := errors.Is(why, procgroup.ErrUnguarded); {
	case unguarded && over:
		s.note(events.GuardReplaced, events.Event{})
		s.Console.Say("a guard watches the command again%s", map[bool]string{true: ", which goes on"}[stopped])
	case unguarded:
		s.note(events.GuardLost, events.Event{Event: replock.Event{Err: why}, Stopped: stopped})
		state := "the command runs on (--on-lost warn)"
		if stopped {
			state = "the command is stopped until a guard watches it again"
		}
		s.Console.Say("warning: %s; %s", text.Error(why), state)
	case over:
		s.note(events.ClocksSettled, events.Event{})
		s.Console.Say("repolock has looked at the lock, and the command goes on")
	default: // the lease itself looks at the lock after a step of the wall clock
		s.note(events.ClocksParted, events.Event{})
		s.Console.Say("%v: the command is stopped until repolock has looked at the lock", why)
	}
}

// continuedByOther reports that another process has continued the command, which may not run.
func (s *session) continuedByOther(killed bool) {
	s.note(events.ContinuedByOther, events.Event{Killed: killed})
	if killed {
		s.Console.Say("another process has continued the stopped command %d times: repolock kills the command", guard.MostContinued+1)
		return
	}
	s.Console.Say("another process has continued the stopped command (cpulimit, kill -CONT, a debugger): repolock has stopped it again, and kills it at the %dth time", guard.MostContinued+1)
}

// maxPIDs bounds the processes that a warning names.
const maxPIDs = 10

// runsOn reports the processes of the command that we couldn't stop or, if killed is set, couldn't kill.
func (s *session) runsOn(pids []int, killed bool) {
	s.note(events.CommandRunsOn, events.Event{PIDs: pids, Killed: killed})
	what, who, they, which := "stopped", fmt.Sprintf("%d processes", len(pids)), "they run on", ""
	if killed {
		what = "killed"
	}
	switch len(pids) {
	case 0:
		who = "processes"
	case 1:
		who, they = "1 process", "it runs on"
	}
	for i, pid := range pids[:min(len(pids), maxPIDs)] {
		which += []string{": pid ", ", "}[min(i, 1)] + strconv.Itoa(pid)
	}
	if len(pids) > maxPIDs {
		which += ", …"
	}
	message := fmt.Sprintf("%s of the command can't be %s%s; %s", who, what, which, they)
	if s.lock.Lost() != nil {
		message += " without the lock"
	}
	s.Console.Alert("command_runs_on", message)
}
