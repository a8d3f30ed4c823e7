// Package audit writes and reads the audit log, makes a history of its events, and draws the history. Each line of the
// log is an event of a lock, in JSON. Any number of processes can append to it.
//
// tower-fleet's locking specification (lock/v1, sections 4 to 8) defines the names of events and fields. Its request_id
// is the id of the lock. Fields are only ever added.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
)

// The values of Record.Event.
const (
	Acquired        = "lock_acquired"
	Blocked         = "lock_blocked"
	Stale           = "lock_stale" // the lock was refused because of a stale lock, which stays until it is broken or stolen
	Released        = "lock_released"
	Stolen          = "lock_stolen" // a stale lock was removed
	Lost            = "lock_lost"
	Paused          = "lock_paused"  // the command was stopped because the lock is lost
	Resumed         = "lock_resumed" // the lock is held again
	HeartbeatFailed = "heartbeat_failed"
	ReleaseFailed   = "lock_release_failed"
	Broken          = "lock_broken"

	// Suspended: a person stopped repolock and its command (Ctrl-Z). Continued ends it.
	Suspended = "command_suspended"
	Continued = "command_continued"

	// ClocksParted: the wall clock was stepped, or the machine was paused. The command is stopped until a look at its
	// lock has succeeded. ClocksSettled ends the stop.
	ClocksParted  = "clocks_parted"
	ClocksSettled = "clocks_settled"

	// GuardLost: the guard that watches the command has ended. If Action is CommandStopped, the command is stopped.
	// GuardReplaced reports the next guard.
	GuardLost     = "guard_lost"
	GuardReplaced = "guard_replaced"

	// ContinuedByOther: another process has continued the stopped command. Action is CommandStopped if it was stopped
	// again, or CommandKilled if that happened too often.
	ContinuedByOther = "command_continued_by_other"

	// RunsOn: the processes PIDs of the command still run although repolock has stopped or killed them. Reason is
	// NotStopped or NotKilled.
	RunsOn = "command_runs_on"
)

// The values of Result, Reason and Action.
const (
	Success        = "success"
	Failure        = "failure"
	Skipped        = "skipped" // the command didn't run, because its job had succeeded before
	ManualCleanup  = "manual_cleanup_required"
	NotStopped     = "not_stopped"
	NotKilled      = "not_killed"
	CommandStopped = "command_stopped"
	CommandKilled  = "command_killed"
)

// Record is one event.
type Record struct {
	Event     string `json:"event"`                // Acquired or another constant above
	RequestID string `json:"request_id,omitempty"` // the id of the lock
	// ResumedFrom is the id that the lock had before it was lost.
	ResumedFrom string    `json:"resumed_from,omitempty"`
	Timestamp   time.Time `json:"timestamp"`
	// LockName is "repository" unless the lock has a name.
	LockName string `json:"lock_name"`
	// LockPath is the repository without credentials, followed by the lock's key. For a lock of --also it is the lock's
	// URL.
	LockPath  string `json:"lock_path,omitempty"`
	Mode      string `json:"mode,omitempty"`
	Operation string `json:"operation,omitempty"`
	// Job is the user's name for the work under the lock.
	Job string `json:"job,omitempty"`
	// Actor, HostID, Hostname and PID name the user, the machine and the process that wrote the record.
	Actor    string `json:"actor,omitempty"`
	HostID   string `json:"host_id,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	PID      int    `json:"pid,omitempty"`

	TTLSeconds          float64  `json:"ttl_seconds,omitempty"`
	Staleness                    // set if Event is Stale: the stale lock's, as is TTLSeconds then
	WaitedSeconds       float64  `json:"waited_seconds,omitempty"`
	HeldDurationSeconds *float64 `json:"held_duration_seconds,omitempty"`
	// Result and ExitCode describe the end of the command.
	Result string `json:"result,omitempty"`
	// FailureStep is the step in which the holder of a tower-fleet lock failed. Failures is the number of intervals
	// without a heartbeat.
	FailureStep string `json:"failure_step,omitempty"`
	Failures    int    `json:"consecutive_failures,omitempty"`

	ExitCode *int `json:"exit_code,omitempty"`

	PIDs []int `json:"pids,omitempty"`

	// HeldBy has up to maxHolders holders. HeldByMore is the number of further holders.
	HeldBy     []Holder `json:"held_by,omitempty"`
	HeldByMore int      `json:"held_by_more,omitempty"`
	// PreviousLock is the whole body of a lock that was removed. PreviousLockHash is its hash, as sha256:HEX.
	PreviousLock     json.RawMessage `json:"previous_lock,omitempty"`
	PreviousLockHash string          `json:"previous_lock_hash,omitempty"`

	Reason string `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
	Action string `json:"action,omitempty"`
}

// Staleness is when a lock became stale, and the age of its last heartbeat.
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

// Log is an audit log that is open for writing. Each record is one write to the end of the file. Except on NFS, such a
// write is atomic (O_APPEND: open(2)), so any number of processes can write to one log.
type Log struct {
	file *os.File
	torn bool // our last record is cut off
}

// Open opens the file, or creates it so that only its owner can read it. It refuses a FIFO, because it could wait for
// the FIFO's reader.
func Open(path string) (*Log, error) {
	file, err := regular.Append(path)
	if err != nil {
		return nil, err
	}
	return &Log{file: file}, nil
}

// Append appends an event: a Record, whose texts it cuts, or another value that marshals to a JSON object.
func (l *Log) Append(event any) error {
	if r, ok := event.(Record); ok {
		event = r.cut()
	}
	line, err := text.Marshal(event)
	if err != nil {
		return err
	}
	if l.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := l.file.Write(append(line, '\n'))
	if l.torn = err != nil && (l.torn || n > 0); l.torn { // the disk is full: the next record must begin on a new line
		_, failed := l.file.Write([]byte{'\n'}) // for that of another process
		l.torn = failed != nil
	}
	return err
}

// maxLine is the longest line that Read accepts, in bytes. A record is shorter: the body of a lock has up to 64 KiB,
// and all other texts are cut.
const maxLine = 1 << 20

// Read returns the records of a log. It skips lines that are too long or aren't records, and counts them. A full disk
// can have cut a line off.
func Read(r io.Reader) (records []Record, skipped int, err error) {
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return records, skipped, err
		}
		if len(line) > 0 {
			var record Record
			if !tooLong && json.Unmarshal(line, &record) == nil && record.Event != "" && !record.Timestamp.IsZero() {
				records = append(records, record)
			} else {
				skipped++
			}
		}
		if err != nil {
			return records, skipped, nil
		}
	}
}

// These limits keep each line shorter than maxLine.
const (
	// maxText is the number of bytes to which each text of a Holder is cut. Another client can have written up to 64
	// KiB. The texts of repolock are shorter than maxText.
	maxText = 1 << 10
	// maxOwn is the number of bytes to which each other text of a record is cut. An error can quote a holder.
	maxOwn = 5 << 10
	// maxHolders is the number of holders that a record names.
	maxHolders = 16
)

// cut returns the record within these limits, with its time in UTC.
func (r Record) cut() Record {
	r.Timestamp = r.Timestamp.UTC()
	for _, s := range []*string{&r.LockPath, &r.Operation, &r.Job, &r.Actor, &r.Hostname, &r.HostID, &r.RequestID, &r.ResumedFrom, &r.Reason, &r.Error} {
		*s = text.Cut(*s, maxOwn)
	}
	if more := len(r.HeldBy) - maxHolders; more > 0 {
		r.HeldBy, r.HeldByMore = r.HeldBy[:maxHolders], more
	}
	r.HeldBy = slices.Clone(r.HeldBy) // the caller's must not change
	for i := range r.HeldBy {
		h := &r.HeldBy[i]
		for _, s := range []*string{&h.RequestID, &h.Actor, &h.Intent, &h.Holder, &h.Mode, &h.State} {
			*s = text.Cut(*s, maxText)
		}
	}
	return r
}
