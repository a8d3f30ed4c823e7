package towerfleet

import (
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/internal/text"
)

// emit calls Options.Audit with an event, after it has added the fields that every event has.
func (b *Backend) emit(event, name string, rest audit.Record) {
	if b.opts.Audit == nil {
		return
	}
	rest.Event, rest.RequestID, rest.LockName = event, b.opts.RequestID, name
	rest.Timestamp = b.opts.Clock.Now().UTC().Truncate(time.Second)
	b.opts.Audit(rest)
}

// emitStolen emits lock_stolen. The fields of previous_lock are empty if the old file can't be read.
func (b *Backend) emitStolen(name string, old *file) {
	r, why := old.record, "stale_lock_forced"
	if r == nil {
		r, why = new(record), "unreadable_lock_forced"
	}
	previous, _ := text.Marshal(struct { // strings and a number, so it can't fail
		RequestID       string `json:"request_id"`
		Actor           string `json:"actor"`
		Intent          string `json:"intent"`
		CreatedAt       string `json:"created_at"`
		LastHeartbeatAt string `json:"last_heartbeat_at"`
		HostID          string `json:"host_id"`
		PID             int    `json:"pid"`
	}{r.RequestID, r.Actor, r.Intent, r.CreatedAt, r.LastHeartbeatAt, r.HostID, r.PID})
	b.emit(audit.Stolen, name, audit.Record{PreviousLock: previous, PreviousLockHash: hash(old.Body), Reason: why})
}

// reason formats an error as the specification does: "EACCES: permission denied".
func reason(err error) string {
	if name, message := lockfile.Errno(err); name != "" {
		return name + ": " + message
	}
	return text.Error(err)
}
