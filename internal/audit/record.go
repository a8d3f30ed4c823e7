// Package audit reads and writes the audit log: JSON lines, one event of a lock each. Any
// number of processes can append to it.
//
// The names of events and fields are those of the locking specification of tower-fleet
// (lock/v1, sections 4 to 8), of which request_id is the lock's id. Fields are only
// ever added.
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
	Result string `json:"result,omitempty"`
	// FailureStep is where the holder of a tower-fleet lock failed, and Failures the number of its
	// intervals without a heartbeat.
	FailureStep string `json:"failure_step,omitempty"`
	Failures    int    `json:"consecutive_failures,omitempty"`

	ExitCode *int `json:"exit_code,omitempty"`

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

// Log is a file that records are appended to. Any number of processes can use it
// concurrently: each record is one write to the end of the file, which is atomic (O_APPEND:
// open(2); not on NFS).
type Log struct{ file *os.File }

// Open opens the file, or creates it for its owner alone. It refuses a FIFO, which could
// make it wait.
func Open(path string) (*Log, error) {
	file, err := regular.Append(path)
	if err != nil {
		return nil, err
	}
	return &Log{file}, nil
}

// Append appends a record, and cuts its texts.
func (l *Log) Append(r Record) error {
	r.Timestamp = r.Timestamp.UTC()
	return l.AppendForeign(r.cut())
}

// AppendForeign appends an event in a form of its own, which marshals to a JSON object.
func (l *Log) AppendForeign(event any) error {
	line, err := text.Marshal(event)
	if err != nil {
		return err
	}
	n, err := l.file.Write(append(line, '\n'))
	if err != nil && n > 0 {
		_, _ = l.file.Write([]byte{'\n'}) // the disk is full: the next record must begin a line
	}
	return err
}

// maxLine is more than any record needs: a lock's body has at most 64 KiB, and the rest is cut.
const maxLine = 1 << 20

// Read returns the records of a log, and the number of lines that it skipped because they
// are too long or no records: a full disk can have cut a line off.
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

// Limits of texts in the log: Read must accept each line.
const (
	// maxText bounds a text of a holder, in bytes. Other clients' bodies have up to 64 KiB;
	// repolock's own texts are shorter than this.
	maxText = 1 << 10
	// maxOwn bounds the other texts of a record. An error can quote a holder's.
	maxOwn = 5 << 10
	// maxHolders is the number of holders that a record names.
	maxHolders = 16
)

// cut returns the record within these limits.
func (r Record) cut() Record {
	for _, s := range []*string{&r.LockPath, &r.Operation, &r.Job, &r.Actor, &r.Hostname, &r.HostID, &r.RequestID, &r.ResumedFrom, &r.Reason, &r.Error} {
		*s = text.Cut(*s, maxOwn)
	}
	if more := len(r.HeldBy) - maxHolders; more > 0 {
		r.HeldBy, r.HeldByMore = r.HeldBy[:maxHolders], more
	}
	r.HeldBy = slices.Clone(r.HeldBy) // don't change the caller's
	for i := range r.HeldBy {
		h := &r.HeldBy[i]
		for _, s := range []*string{&h.RequestID, &h.Actor, &h.Intent, &h.Holder, &h.Mode, &h.State} {
			*s = text.Cut(*s, maxText)
		}
	}
	return r
}
