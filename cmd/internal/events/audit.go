package events

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// Auditor appends events to the audit log.
type Auditor struct {
	log    *audit.Log
	say    func(format string, args ...any)
	common audit.Record
	repo   string

	asked time.Duration    // the beginning of the acquire, on the clock since boot
	locks map[string]lease // by Event.Place
	work  Event            // WorkEnded
}

// lease has the time of an acquire, on the clock since boot, and the lock's present id.
type lease struct {
	acquired time.Duration
	id       string
}

// NewAuditor opens the audit log at path, for the lock called name in the repository repo. repo has no credentials.
// job is the user's name for the work, or "". say gets a warning if an event can't be written.
func NewAuditor(path, repo, name, job string, say func(format string, args ...any)) (*Auditor, error) {
	log, err := audit.Open(path)
	if err != nil {
		return nil, err
	}
	self := identity.Self()
	return &Auditor{
		log: log, say: say, repo: repo, asked: clock.System{}.Elapsed(), locks: map[string]lease{},
		common: audit.Record{LockName: LockName(name), Job: job, Actor: self.User, HostID: self.HostID, Hostname: self.Hostname, PID: self.PID},
	}, nil
}

// Handle appends the records of an event. Some events have no record.
func (a *Auditor) Handle(e Event) {
	if e.Record != nil {
		a.report(a.log.Append(e.Record))
	}
	for _, record := range a.records(e) {
		a.report(a.log.Append(record))
	}
}

func (a *Auditor) report(err error) {
	if err != nil {
		a.say("warning: the audit log can't be written: %s", text.Error(err))
	}
}

func (a *Auditor) records(e Event) (records []audit.Record) {
	now := clock.System{}.Elapsed()
	if e.Kind == replock.EventAcquired {
		a.locks[e.Place] = lease{now, e.ID}
	}
	if e.Recorded {
		return nil
	}
	record := a.record(e)
	switch e.Kind {
	case replock.EventAcquired:
		record.WaitedSeconds = Seconds(now - a.asked)
	case replock.EventBlocked:
		record.WaitedSeconds, record.HeldBy = Seconds(e.Waited), holders(e.Holders)
		if h, ok := Stale(e.Place, e.Holders); ok {
			record.Event, record.TTLSeconds, record.Staleness = audit.Stale, h.TTL.Seconds(), NewStaleness(h)
		}
	case replock.EventReaped, LockBroken:
		for _, h := range e.Holders {
			records = append(records, removed(record, h))
		}
		return records
	case replock.EventReleased:
		record.ExitCode, record.HeldDurationSeconds, record.Result = a.work.ExitCode, a.held(now, e), audit.Failure
		switch {
		case a.work.Skipped:
			record.Result = audit.Skipped
		case a.work.Success:
			record.Result = audit.Success
		}
	case replock.EventReleaseFailed:
		record.Action = audit.ManualCleanup
	case replock.EventLost:
		record.HeldDurationSeconds = a.held(now, e)
	case replock.EventResumed:
		was := a.locks[e.Place]
		record.ResumedFrom, was.id = was.id, e.ID
		a.locks[e.Place] = was
	case WorkEnded:
		a.work = e
	case CommandPaused:
		record.Reason = "lock_lost"
	case GuardLost:
		if e.Stopped {
			record.Action = audit.CommandStopped
		}
	case ContinuedByOther:
		record.Action = audit.CommandStopped
		if e.Killed {
			record.Action = audit.CommandKilled
		}
	case CommandRunsOn:
		record.PIDs, record.Reason = e.PIDs, audit.NotStopped
		if e.Killed {
			record.Reason = audit.NotKilled
		}
	}
	if record.Event == "" {
		return nil
	}
	return []audit.Record{record}
}

// record returns the fields that all records have, for an event.
func (a *Auditor) record(e Event) audit.Record {
	record := a.common
	record.Event, record.Timestamp, record.RequestID, record.Operation = kinds[e.Kind].audit, e.Time, e.ID, e.Operation
	record.TTLSeconds, record.Reason = e.TTL.Seconds(), e.Reason
	if e.Mode != 0 {
		record.Mode = e.Mode.String()
	}
	switch {
	case e.Place != "":
		record.LockName, record.LockPath = LockName(e.Name), e.Place
	case e.Key != "":
		record.LockPath = a.path(e.Key)
	}
	if e.Err != nil {
		record.Error = text.Error(e.Err)
	}
	return record
}

// path returns the key in the repository, without the query of a URL.
func (a *Auditor) path(key string) string {
	repo := a.repo
	if strings.Contains(repo, "://") {
		repo, _, _ = strings.Cut(repo, "?")
	}
	return strings.TrimSuffix(repo, "/") + "/" + key
}

// held returns the seconds since the lock of an event was acquired.
func (a *Auditor) held(now time.Duration, e Event) *float64 {
	s := Seconds(now - a.locks[e.Place].acquired)
	return &s
}

// removed returns the record of a deleted lock, with its whole body.
func removed(record audit.Record, h replock.Info) audit.Record {
	record.HeldBy = holders([]replock.Info{h})
	if record.Event == audit.Stolen {
		record.Reason = "stale"
	} else if record.Error != "" {
		record.Action = audit.ManualCleanup
	}
	if h.Body == nil {
		return record
	}
	sum := sha256.Sum256(h.Body)
	record.PreviousLockHash = "sha256:" + hex.EncodeToString(sum[:])
	if record.PreviousLock = h.Body; !json.Valid(h.Body) { // compressed, or encrypted, or garbage
		record.PreviousLock, _ = json.Marshal(base64.StdEncoding.EncodeToString(h.Body))
	}
	return record
}

func holders(infos []replock.Info) (holders []audit.Holder) {
	for _, i := range infos {
		holders = append(holders, Holder(i))
	}
	return holders
}

// NewStaleness returns when a lock became stale, and its age.
func NewStaleness(h replock.Info) audit.Staleness {
	return audit.Staleness{StaleSince: Instant(h.ModTime.Add(h.TTL)), AgeSeconds: int64(h.Age / time.Second)}
}

// Holder returns the record's description of a lock.
func Holder(i replock.Info) audit.Holder {
	refreshed := i.ModTime
	if refreshed.IsZero() && !i.Expires.IsZero() {
		refreshed = i.Expires.Add(-i.TTL)
	}
	return audit.Holder{
		RequestID: i.ID, Actor: i.User, Intent: i.Operation, Holder: i.Holder, Mode: i.Mode.String(), State: string(i.State),
		CreatedAt: Instant(i.Acquired), LastHeartbeatAt: Instant(refreshed),
	}
}
