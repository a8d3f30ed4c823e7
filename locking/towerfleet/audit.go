package towerfleet

import (
	"encoding/json"
	"io"
	"sync"

	"github.com/repolock/repolock/internal/text"
)

// Event is the part that all audit events of the specification begin with.
type Event struct {
	Event     string `json:"event"`
	RequestID string `json:"request_id"`
	Timestamp string `json:"timestamp"`
	LockName  string `json:"lock_name"`
}

// Acquired is the event lock_acquired (section 4.3).
type Acquired struct {
	Event
	LockPath   string `json:"lock_path"`
	TTLSeconds int64  `json:"ttl_seconds"`
}

// HeartbeatFailed is the event heartbeat_failed (section 5.4), which the specification names
// but doesn't show.
type HeartbeatFailed struct {
	Event
	LockPath string `json:"lock_path"`
	Failures int    `json:"consecutive_failures"`
	Error    string `json:"error"`
}

// Stolen is the event lock_stolen (section 7.2).
type Stolen struct {
	Event
	PreviousLock Previous `json:"previous_lock"`
	// PreviousLockHash is of the bytes of the file.
	PreviousLockHash string `json:"previous_lock_hash"`
	// Reason is stale_lock_forced, or unreadable_lock_forced for a lock that a person broke.
	Reason string `json:"reason"`
}

// Previous is the stolen lock in Stolen.
type Previous struct {
	RequestID       string `json:"request_id"`
	Actor           string `json:"actor"`
	Intent          string `json:"intent"`
	CreatedAt       string `json:"created_at"`
	LastHeartbeatAt string `json:"last_heartbeat_at"`
	HostID          string `json:"host_id"`
	PID             int    `json:"pid"`
}

// Released is the event lock_released (sections 8.1 and 8.2).
type Released struct {
	Event
	HeldDurationSeconds int64  `json:"held_duration_seconds"`
	Result              string `json:"result"`
	FailureStep         string `json:"failure_step,omitempty"`
}

// ReleaseFailed is the event lock_release_failed (section 8.3).
type ReleaseFailed struct {
	Event
	LockPath string `json:"lock_path"`
	Error    string `json:"error"`
	Action   string `json:"action"`
}

// AuditTo returns a function for Options.Audit that writes each event as a line of JSON. It can
// be called concurrently. An event that can't be written is dropped.
func AuditTo(w io.Writer) func(event any) {
	var mu sync.Mutex
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return func(event any) {
		mu.Lock()
		defer mu.Unlock()
		_ = e.Encode(event)
	}
}

func (b *Backend) emit(event any) {
	if b.opts.Audit != nil {
		b.opts.Audit(event)
	}
}

func (b *Backend) event(kind, name string) Event {
	return Event{kind, b.opts.RequestID, formatTime(b.opts.Clock.Now()), name}
}

// emitStolen emits lock_stolen. Of a file that can't be read only the hash is known.
func (b *Backend) emitStolen(name string, old *file) {
	r, why := old.record, "stale_lock_forced"
	if r == nil {
		r, why = new(record), "unreadable_lock_forced"
	}
	b.emit(Stolen{b.event("lock_stolen", name),
		Previous{r.RequestID, r.Actor, r.Intent, r.CreatedAt, r.LastHeartbeatAt, r.HostID, r.PID},
		old.hash(), why})
}

// reason is an error as the specification shows one: "EACCES: permission denied".
func reason(err error) string {
	if name, message := errno(err); name != "" {
		return name + ": " + message
	}
	return text.Error(err)
}
