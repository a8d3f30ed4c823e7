package session

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/repolock/repolock/internal/events"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// interruptedGroup is called when the command is stopped although its lock is held, and
// when that is over: no guard watches it, or the lock has to be looked at.
func (s *session) interruptedGroup(why error, over bool) {
	stopped := s.expiry() != procgroup.Nothing
	switch unguarded := errors.Is(why, procgroup.ErrUnguarded); {
	case unguarded && over:
		s.note(s.current(), events.GuardReplaced, events.Event{})
		s.Console.Say("a guard watches the command again%s", map[bool]string{true: ", which goes on"}[stopped])
	case unguarded: // the guard is gone, and can't be replaced
		s.note(s.current(), events.GuardLost, events.Event{Event: replock.Event{Err: why}, Stopped: stopped})
		state := "the command runs on (--on-lost warn)"
		if stopped {
			state = "the command is stopped until one does"
		}
		s.Console.Say("warning: %s; %s", text.Error(why), state)
	case over:
		s.note(s.current(), events.ClocksSettled, events.Event{})
		s.Console.Say("the lock was looked at, and the command goes on")
	default: // the lock looks by itself as soon as the clocks part
		s.note(s.current(), events.ClocksParted, events.Event{})
		s.Console.Say("%v: the command is stopped until the lock was looked at", why)
	}
}

// maxPIDs is how many processes a warning names.
const maxPIDs = 10

// runsOn is called with the processes of the command that can't be stopped, or killed.
func (s *session) runsOn(pids []int, killed bool) {
	lock := s.current()
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
