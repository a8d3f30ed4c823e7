// Package events writes what happens to a lock and to the work that it protects. Each record is a Sink: the audit log and
// the metrics file.
package events

import (
	"cmp"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/replock"
)

// Kinds of events that package replock doesn't have.
const (
	// WorkEnded: the protected work has ended. Success and ExitCode are its result.
	WorkEnded replock.EventKind = "work_ended"
	// CommandPaused: the command was stopped because its lock is lost.
	CommandPaused replock.EventKind = "command_paused"
	// ClocksParted: the command is stopped until the lock has been looked at, because the
	// wall clock was stepped or the machine was paused.
	ClocksParted replock.EventKind = "clocks_parted"
	// ClocksSettled: the command goes on after ClocksParted.
	ClocksSettled replock.EventKind = "clocks_settled"
	// GuardLost: no guard watches the command. Stopped is set if the command is stopped because of that.
	GuardLost replock.EventKind = "guard_lost"
	// GuardReplaced: a guard watches the command again.
	GuardReplaced replock.EventKind = "guard_replaced"
	// CommandRunsOn: PIDs of the command run on although repolock has stopped, or Killed, the command.
	CommandRunsOn replock.EventKind = "command_runs_on"
	// CommandSuspended: a person stopped the command and repolock (Ctrl-Z).
	CommandSuspended replock.EventKind = "command_suspended"
	// CommandContinued: the command goes on after CommandSuspended.
	CommandContinued replock.EventKind = "command_continued"
	// ContinuedByOther: another process continued the stopped command. It was stopped again, or Killed.
	ContinuedByOther replock.EventKind = "command_continued_by_other"
	// NotAcquired: the lock wasn't acquired, whatever the reason.
	NotAcquired replock.EventKind = "not_acquired"
	// LockBroken: break-lock has deleted the lock in Holders for Reason, or failed with Err.
	LockBroken replock.EventKind = "lock_broken"
	// DirectoryCreated: the directory of another system's lock was missing, and was created.
	DirectoryCreated replock.EventKind = "directory_created"
	// PasswordExposed: all users of this machine can read the file with the password of another system.
	PasswordExposed replock.EventKind = "password_exposed"
)

// kind has the names of an event in the two records. A record leaves out an event whose name is "".
type kind struct {
	audit   string // in the audit log
	counter string // in the metrics
}

// kinds has all kinds of events, also the kinds without a record.
var kinds = map[replock.EventKind]kind{
	replock.EventAcquired:      {audit: audit.Acquired},
	replock.EventBlocked:       {audit: audit.Blocked, counter: "repolock_blocked_total"},
	replock.EventWaiting:       {},
	replock.EventWatching:      {},
	replock.EventReading:       {},
	replock.EventReaping:       {},
	replock.EventRetrying:      {},
	replock.EventReaped:        {audit: audit.Stolen, counter: "repolock_reaped_total"},
	replock.EventRefreshed:     {counter: "repolock_refreshes_total"},
	replock.EventRefreshFailed: {counter: "repolock_refresh_failures_total"},
	replock.EventGaveUp:        {audit: audit.HeartbeatFailed},
	replock.EventLost:          {audit: audit.Lost, counter: "repolock_lost_total"},
	replock.EventResumed:       {audit: audit.Resumed, counter: "repolock_resumed_total"},
	replock.EventReleased:      {audit: audit.Released},
	replock.EventReleaseFailed: {audit: audit.ReleaseFailed, counter: "repolock_release_failures_total"},
	WorkEnded:                  {}, // the audit log has it in EventReleased
	CommandPaused:              {audit: audit.Paused},
	ClocksParted:               {audit: audit.ClocksParted},
	ClocksSettled:              {audit: audit.ClocksSettled},
	GuardLost:                  {audit: audit.GuardLost},
	GuardReplaced:              {audit: audit.GuardReplaced},
	CommandRunsOn:              {audit: audit.RunsOn},
	CommandSuspended:           {audit: audit.Suspended},
	CommandContinued:           {audit: audit.Continued},
	ContinuedByOther:           {audit: audit.ContinuedByOther},
	NotAcquired:                {}, // the audit log has EventBlocked
	LockBroken:                 {audit: audit.Broken},
	DirectoryCreated:           {}, // a warning to the user
	PasswordExposed:            {}, // a warning to the user
}

// Event is an event of a lock, or of the work that the lock protects.
type Event struct {
	replock.Event
	// Place is the lock's URL without credentials, or "" for the first repository. The lock's name there is
	// Event.Name.
	Place string
	// Record is an event in the form of another system's specification, for the audit log. An Event with a Record has
	// no Kind. Recorded is set on an event that is also sent as a Record.
	Record   any
	Recorded bool
	TTL      time.Duration // of the lock; the session replaces 0 by its own
	Success  bool
	Skipped  bool // the work wasn't begun, because it had succeeded before
	ExitCode *int // nil for work that isn't a command
	Stopped  bool
	PIDs     []int
	Killed   bool
	Reason   string
}

// Sink is a record of events. Handle is called with one event at a time, in order, and can be slow.
type Sink interface{ Handle(Event) }

// Stale returns the holder of another system's stale lock, which stays until a person breaks or steals it. It
// reports false for any other lock.
func Stale(place string, holders []replock.Info) (replock.Info, bool) {
	if len(holders) != 1 {
		return replock.Info{}, false
	}
	h := holders[0]
	return h, h.Verdict == replock.Stale && h.TTL > 0 && slices.Equal(h.Keys, []string{place})
}

// LockName returns a lock's name for records and JSON.
func LockName(name string) string { return cmp.Or(name, "repository") }

// Seconds returns d in seconds, rounded to a millisecond.
func Seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// Instant returns t in UTC, or nil if JSON has no form for it.
func Instant(t time.Time) *time.Time {
	t = t.UTC() // before the year is read: the offset of a time can end another year than UTC's
	if y := t.Year(); t.IsZero() || y < 0 || y > 9999 {
		return nil
	}
	return &t
}
