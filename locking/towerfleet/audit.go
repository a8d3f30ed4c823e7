package towerfleet

import (
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/text"
)

// emit passes an event on with the fields that all events of the specification have.
func (b *Backend) emit(event, name string, rest audit.Record) {
	if b.opts.Audit == nil {
		return
	}
	rest.Event, rest.RequestID, rest.LockName = event, b.opts.RequestID, name
	rest.Timestamp = b.opts.Clock.Now().UTC().Truncate(time.Second)
	b.opts.Audit(rest)
}

// emitStolen emits lock_stolen. Of a file that can't be read only the hash is known.
func (b *Backend) emitStolen(name string, old *file) {
	r, why := old.record, "stale_lock_forced"
	if r == nil {
		r, why = new(record), "unreadable_lock_forced"
	}
	previous, _ := text.Marshal(struct { // of strings and a number: it can't fail
		heldBy
		HostID string `json:"host_id"`
		PID    int    `json:"pid"`
	}{r.heldBy(), r.HostID, r.PID})
	b.emit(audit.Stolen, name, audit.Record{PreviousLock: previous, PreviousLockHash: old.hash(), Reason: why})
}

// reason is an error as the specification shows one: "EACCES: permission denied".
func reason(err error) string {
	if name, message := errno(err); name != "" {
		return name + ": " + message
	}
	return text.Error(err)
}
