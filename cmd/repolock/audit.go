package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/replock"
)

// auditor writes what happens to a lock into the audit log. One that has no log does
// nothing. What can't be written is said, and holds nobody up.
type auditor struct {
	r      *reporter
	log    *audit.Log
	common audit.Record
	repo   string

	mu       sync.Mutex
	asked    time.Duration // when the lock was, on the clock since boot
	acquired time.Duration
	id       string // the lock's
	code     *int   // the command's
	ok       bool   // and it counts
}

// newAuditor opens the log of --audit.
func newAuditor(r *reporter, g global, path string) (*auditor, error) {
	a := &auditor{r: r, repo: redact(g.Repo), asked: clock.System{}.Elapsed()}
	if path == "" {
		return a, nil
	}
	var err error
	if a.log, err = audit.Open(path); err != nil {
		return nil, usageError{fmt.Errorf("--audit: %w", err)}
	}
	self := identity.Self()
	a.common = audit.Record{
		LockName: lockName(g.Name), Actor: self.User, HostID: self.HostID, Hostname: self.Hostname, PID: self.PID,
	}
	return a, nil
}

// lockName is what the audit log and JSON call a lock.
func lockName(name string) string {
	if name == "" {
		return "repository"
	}
	return name
}

// ended tells it the command's exit code, which the release of the lock is told with, and
// whether it was a success.
func (a *auditor) ended(code int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.code, a.ok = &code, ok
}

// done tells it that what the lock was held for is over, and whether that was a success,
// of which there is no exit code.
func (a *auditor) done(ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ok = ok
}

// event is told of each event of the lock.
func (a *auditor) event(e replock.Event, ttl time.Duration) {
	if a.log == nil {
		return
	}
	for _, record := range a.records(e, ttl) {
		a.write(record) // which may take long: nobody waits for it
	}
}

// records are what an event is written as.
func (a *auditor) records(e replock.Event, ttl time.Duration) (records []audit.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := clock.System{}.Elapsed()
	record := a.record(e)
	record.TTLSeconds = ttl.Seconds()
	if e.Err != nil {
		record.Error = oneLine(e.Err)
	}
	switch e.Kind {
	case replock.EventAcquired:
		a.acquired, a.id = now, e.ID
		record.Event, record.WaitedSeconds = audit.Acquired, seconds(now-a.asked)
	case replock.EventBlocked:
		record.Event, record.WaitedSeconds, record.HeldBy = audit.Blocked, seconds(e.Waited), holders(e.Holders)
	case replock.EventReaped:
		for _, h := range e.Holders {
			records = append(records, stolen(record, h))
		}
		return records
	case replock.EventReleased:
		record.Event, record.ExitCode = audit.Released, a.code
		record.HeldDurationSeconds = a.held(now)
		record.Result = audit.Failure
		if a.ok {
			record.Result = audit.Success
		}
	case replock.EventReleaseFailed:
		record.Event, record.Action = audit.ReleaseFailed, audit.ManualCleanup
	case replock.EventGaveUp:
		record.Event = audit.HeartbeatFailed
	case replock.EventLost:
		record.Event, record.HeldDurationSeconds = audit.Lost, a.held(now)
	case replock.EventResumed:
		record.Event, record.ResumedFrom = audit.Resumed, a.id
		a.id = e.ID
	default:
		return nil
	}
	return []audit.Record{record}
}

// paused is told that the command was stopped at this time for the loss of its lock.
func (a *auditor) paused(lock *replock.Lock, at time.Time) {
	a.command(lock, at, audit.Record{Event: audit.Paused, Reason: "lock_lost"})
}

// parted is told that the command was stopped at this time until the lock was looked at,
// because the clocks parted, and that it goes on.
func (a *auditor) parted(lock *replock.Lock, at time.Time, over bool) {
	event := audit.ClocksParted
	if over {
		event = audit.ClocksSettled
	}
	a.command(lock, at, audit.Record{Event: event})
}

// command writes what happened to the command at this time.
func (a *auditor) command(lock *replock.Lock, at time.Time, what audit.Record) {
	if a.log == nil {
		return
	}
	record := a.record(replock.Event{Time: at, Mode: lock.Mode(), Operation: lock.Operation(), ID: lock.ID(), Key: lock.Key()})
	record.Event, record.Reason, record.Action, record.Error, record.PIDs = what.Event, what.Reason, what.Action, what.Error, what.PIDs
	a.write(record)
}

// broken is told of each lock that break-lock has removed.
func (a *auditor) broken(b replock.Broken, why string) {
	if a.log == nil {
		return
	}
	record := stolen(a.record(replock.Event{Time: clock.System{}.Now()}), b.Info)
	record.Event, record.Reason = audit.Broken, why
	if b.Err != nil {
		record.Error, record.Action = oneLine(b.Err), audit.ManualCleanup
	}
	record.LockPath = a.path(b.Key())
	a.write(record)
}

func (a *auditor) record(e replock.Event) audit.Record {
	record := a.common
	record.Timestamp, record.RequestID, record.Operation = e.Time, e.ID, e.Operation
	if e.Mode != 0 {
		record.Mode = e.Mode.String()
	}
	if e.Key != "" {
		record.LockPath = a.path(e.Key)
	}
	return record
}

// path is the repository without what a URL has after its path, and the key.
func (a *auditor) path(key string) string {
	repo := a.repo
	if strings.Contains(repo, "://") {
		repo, _, _ = strings.Cut(repo, "?")
	}
	return strings.TrimSuffix(repo, "/") + "/" + key
}

func (a *auditor) write(record audit.Record) {
	if err := a.log.Append(record); err != nil {
		a.r.say("warning: the audit log can't be written: %s", oneLine(err))
	}
}

func (a *auditor) held(now time.Duration) *float64 {
	s := seconds(now - a.acquired)
	return &s
}

// seconds are told to a millisecond.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// stolen is the record of a lock that was removed, with all of it.
func stolen(record audit.Record, h replock.Info) audit.Record {
	record.Event, record.Reason = audit.Stolen, "stale"
	record.HeldBy = holders([]replock.Info{h})
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
		j := newJSONLock(i)
		holders = append(holders, audit.Holder{
			RequestID: i.ID, Actor: i.User, Intent: i.Operation, Holder: i.Holder, Mode: j.Mode, State: i.State,
			CreatedAt: j.AcquiredAt, LastHeartbeatAt: j.LastHeartbeatAt,
		})
	}
	return holders
}
