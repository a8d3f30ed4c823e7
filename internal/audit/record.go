// Package audit reads and writes the audit log: JSON lines, one event of a lock each. Any
// number of processes can append to it.
//
// The names of events and fields are those of the locking specification of tower-fleet
// (lock/v1, sections 4 to 8), of which request_id is the lock's id. Fields are only
// ever added.
package audit

import (
	"encoding/json"
	"time"
)

// The events.
const (
	Acquired        = "lock_acquired"
	Blocked         = "lock_blocked"
	Stale           = "lock_stale" // blocked by a stale lock, which stays until it is broken or stolen
	Released        = "lock_released"
	Stolen          = "lock_stolen" // a stale lock was removed
	Lost            = "lock_lost"
	Paused          = "lock_paused"  // the command was stopped because the lock is lost
	Resumed         = "lock_resumed" // the lock is held again
	HeartbeatFailed = "heartbeat_failed"
	ReleaseFailed   = "lock_release_failed"
	Broken          = "lock_broken"

	// A person stopped the command and repolock (Ctrl-Z); and that is over.
	Suspended = "command_suspended"
	Continued = "command_continued"

	// The command is stopped until its lock has been looked at, because the wall clock was
	// stepped or the machine was paused; and it goes on.
	ClocksParted  = "clocks_parted"
	ClocksSettled = "clocks_settled"

	// No guard watches the command, which is stopped if Action says so; and a guard does
	// again.
	GuardLost     = "guard_lost"
	GuardReplaced = "guard_replaced"

	// RunsOn: the processes PIDs of the command run on although they were stopped or killed;
	// Reason says which.
	RunsOn = "command_runs_on"
)

// Values of Result, Reason and Action.
const (
	Success        = "success"
	Failure        = "failure"
	ManualCleanup  = "manual_cleanup_required"
	NotStopped     = "not_stopped"
	NotKilled      = "not_killed"
	CommandStopped = "command_stopped"
)

// Record is one event.
type Record struct {
	Event     string `json:"event"`
	RequestID string `json:"request_id,omitempty"`
	// ResumedFrom is the id of the lost lock that was resumed.
	ResumedFrom string    `json:"resumed_from,omitempty"`
	Timestamp   time.Time `json:"timestamp"`
	// LockName is "repository" unless the lock has a name.
	LockName string `json:"lock_name"`
	// LockPath is the repository without credentials, and the key of the lock's flag.
	LockPath  string `json:"lock_path,omitempty"`
	Mode      string `json:"mode,omitempty"`
	Operation string `json:"operation,omitempty"`
	// Job is the user's name for what runs under the lock.
	Job string `json:"job,omitempty"`
	// Actor is the user of the process of HostID, Hostname and PID that wrote the record.
	Actor    string `json:"actor,omitempty"`
	HostID   string `json:"host_id,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	PID      int    `json:"pid,omitempty"`

	TTLSeconds          float64  `json:"ttl_seconds,omitempty"`
	Staleness                    // of the holder's lock with Stale, and TTLSeconds is that lock's, too
	WaitedSeconds       float64  `json:"waited_seconds,omitempty"`
	HeldDurationSeconds *float64 `json:"held_duration_seconds,omitempty"`
	// Result and ExitCode are the command's.
	Result   string `json:"result,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`

	PIDs []int `json:"pids,omitempty"`

	// HeldBy has up to maxHolders holders, and HeldByMore is the number of others.
	HeldBy     []Holder `json:"held_by,omitempty"`
	HeldByMore int      `json:"held_by_more,omitempty"`
	// PreviousLock is the whole body of a lock that was removed, and PreviousLockHash is its
	// hash, as sha256:HEX.
	PreviousLock     json.RawMessage `json:"previous_lock,omitempty"`
	PreviousLockHash string          `json:"previous_lock_hash,omitempty"`

	Reason string `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
	Action string `json:"action,omitempty"`
}

// Staleness says since when a lock is stale, and how old its last heartbeat is.
type Staleness struct {
	StaleSince *time.Time `json:"stale_since,omitempty"`
	AgeSeconds int64      `json:"age_seconds,omitempty"`
}

// Holder is a holder of a lock.
type Holder struct {
	RequestID       string     `json:"request_id,omitempty"`
	Actor           string     `json:"actor,omitempty"`
	Intent          string     `json:"intent,omitempty"` // the operation
	Holder          string     `json:"holder,omitempty"`
	Mode            string     `json:"mode,omitempty"`
	State           string     `json:"state,omitempty"`
	CreatedAt       *time.Time `json:"created_at,omitempty"`
	LastHeartbeatAt *time.Time `json:"last_heartbeat_at,omitempty"`
}
