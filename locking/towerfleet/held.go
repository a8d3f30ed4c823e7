package towerfleet

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// HeldError is returned by Acquire when another holder has the lock, also if that lock is stale
// or can't be read. Its JSON is the specification's lock_blocked (section 4.4) or lock_stale
// (section 6.3).
type HeldError struct {
	Name string
	// Path is the lock file, or the temporary file of a request that is about to have the lock.
	// It is safe to show.
	Path string
	// Stale is set if the holder has let its ttl pass. Options.Force steals such a lock.
	Stale bool
	// Trouble is why the file can't be read. Such a lock is held, and is never stolen.
	Trouble string

	record record // zero if Trouble is set
	now    time.Time
}

func newHeld(name string, f *file, now time.Time) *HeldError {
	e := &HeldError{Name: name, Path: text.Escape(f.Path), Trouble: f.Trouble, now: now}
	if f.record != nil {
		e.record, e.Stale = *f.record, f.record.stale(now)
	}
	return e
}

func (e *HeldError) Error() string {
	if e.Trouble != "" {
		return fmt.Sprintf("lock %s is held: %s can't be read: %s: look at the file, and remove it if no execution uses it",
			e.Name, e.Path, e.Trouble)
	}
	r := &e.record
	holder := fmt.Sprintf("%s, intent %s, by %s on %s (pid %d)", r.RequestID, text.Or(r.Intent, "unknown"),
		text.Or(r.Actor, "unknown"), text.Or(r.HostID, "unknown"), r.PID)
	if e.Stale {
		return fmt.Sprintf("lock %s is stale: %s has its last heartbeat %s ago, of %s, and its ttl is %s: "+
			"use --force-lock to steal it", e.Name, e.Path, time.Duration(r.age(e.now))*time.Second, holder, r.ttl())
	}
	return fmt.Sprintf("lock %s is held: %s is of %s, last heartbeat at %s: wait for its completion",
		e.Name, e.Path, holder, r.LastHeartbeatAt)
}

// heldBy is the holder in the specification's lock_blocked, and the first part of it in lock_stolen.
type heldBy struct {
	RequestID       string `json:"request_id"`
	Actor           string `json:"actor"`
	Intent          string `json:"intent"`
	CreatedAt       string `json:"created_at"`
	LastHeartbeatAt string `json:"last_heartbeat_at"`
}

func (r *record) heldBy() heldBy {
	return heldBy{r.RequestID, r.Actor, r.Intent, r.CreatedAt, r.LastHeartbeatAt}
}

// MarshalJSON returns the specification's answer to a refused execution. If the file can't be
// read, the fields of held_by are empty and the suggestion says what to do.
func (e *HeldError) MarshalJSON() ([]byte, error) {
	type holder struct {
		RequestID string `json:"request_id"`
		Actor     string `json:"actor"`
		HostID    string `json:"host_id"`
		PID       int    `json:"pid"`
	}
	answer := struct {
		Error    string `json:"error"`
		LockName string `json:"lock_name"`
		audit.Staleness
		TTLSeconds int64  `json:"ttl_seconds,omitempty"`
		HeldBy     any    `json:"held_by"`
		Suggestion string `json:"suggestion"`
	}{Error: "lock_blocked", LockName: e.Name, HeldBy: e.record.heldBy(), Suggestion: "Wait for completion or use --force-lock if stale"}
	switch r := &e.record; {
	case e.Trouble != "":
		answer.Suggestion = "Look at " + e.Path + ", which can't be read: " + e.Trouble
	case e.Stale:
		since := r.beat.Add(r.ttl()).Truncate(time.Second)
		answer.Error, answer.Staleness, answer.TTLSeconds = "lock_stale", audit.Staleness{StaleSince: &since, AgeSeconds: r.age(e.now)}, r.TTLSeconds
		answer.HeldBy = holder{r.RequestID, r.Actor, r.HostID, r.PID}
		answer.Suggestion = "Use --force-lock to acquire (stale lock will be logged)"
	}
	return json.Marshal(answer)
}

func (e *HeldError) info(revision string) *locking.Info {
	i := &locking.Info{Key: e.Name, Stale: e.Stale, Trouble: e.Trouble, Revision: revision}
	if r := &e.record; e.Trouble == "" {
		i.Holder = fmt.Sprintf("%s (intent %s, by %s)",
			r.RequestID, text.Or(r.Intent, "unknown"), text.Or(r.Actor, "unknown"))
		i.Host, i.PID, i.TTL = text.Brief(r.HostID), r.PID, r.ttl()
		i.Request, i.Actor, i.Intent = r.RequestID, r.Actor, r.Intent
		i.Acquired, i.Renewed = r.created, r.beat
	}
	return i
}
