package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/child"
	"github.com/repolock/repolock/internal/clock"
)

// stopped is told when the command is stopped although its lock is held, and when it
// goes on.
func (s *session) stopped(why error, over bool) {
	if errors.Is(why, child.ErrUnguarded) {
		s.unguarded(why, over)
	} else {
		s.parted(why, over)
	}
}

// unguarded is told when the guard is gone and can't be replaced, and when it is.
func (s *session) unguarded(why error, over bool) {
	var record audit.Record
	runsOn := s.expiry() == child.Nothing
	switch {
	case over && runsOn:
		record.Event = audit.GuardReplaced
		s.report.say("a guard watches the command again")
	case over:
		record.Event = audit.GuardReplaced
		s.report.say("a guard watches the command again, which goes on")
	case runsOn:
		record.Event, record.Error = audit.GuardLost, oneLine(why)
		s.report.say("warning: %s; the command runs on (--on-lost warn)", oneLine(why))
	default:
		record.Event, record.Error, record.Action = audit.GuardLost, oneLine(why), audit.CommandStopped
		s.report.say("warning: %s; the command is stopped until one does", oneLine(why))
	}
	lock, now := s.lock.Load(), clock.System{}.Now()
	s.locker.Later(func() { s.audit.command(lock, now, record) })
}

// maxPIDs is how many processes a warning names.
const maxPIDs = 10

// runsOn is told which processes of the command can't be stopped, or killed.
func (s *session) runsOn(pids []int, killed bool) {
	record := audit.Record{Event: audit.RunsOn, Reason: audit.NotStopped, PIDs: pids}
	what := "stopped"
	if killed {
		record.Reason, what = audit.NotKilled, "killed"
	}
	lock, now := s.lock.Load(), clock.System{}.Now()
	s.locker.Later(func() { s.audit.command(lock, now, record) })

	who, they := "processes", "they run on"
	switch len(pids) {
	case 0:
	case 1:
		who, they = "1 process", "it runs on"
	default:
		who = fmt.Sprintf("%d processes", len(pids))
	}
	text := fmt.Sprintf("%s of the command can't be %s", who, what)
	for i, pid := range pids[:min(len(pids), maxPIDs)] {
		text += []string{": pid ", ", "}[min(i, 1)] + strconv.Itoa(pid)
	}
	if len(pids) > maxPIDs {
		text += ", …"
	}
	text += "; " + they
	if lock.Lost() != nil {
		text += " without the lock"
	}
	s.report.shout("command_runs_on", text)
}
