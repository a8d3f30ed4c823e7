//go:build unix

// Package beadsdaemon is a daemon for tests of the exclusive lock of beads. It isn't the daemon
// of beads: we have written it after the rules and names of EXCLUSIVE_LOCK of
// beads, and it syncs nothing. TestDocument has these rules in the document's words. TestBeads in
// e2e runs the real daemon, which unlike this one removes no stale lock.
package beadsdaemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ExclusiveLock represents the lock file format.
type ExclusiveLock struct {
	Holder    string    `json:"holder"`
	PID       int       `json:"pid"`
	Hostname  string    `json:"hostname"`
	StartedAt time.Time `json:"started_at"`
	Version   string    `json:"version"`
}

// Validate checks if the lock has valid field values.
func (e *ExclusiveLock) Validate() error {
	if e.Holder == "" || e.PID <= 0 || e.Hostname == "" || e.StartedAt.IsZero() {
		return fmt.Errorf("invalid lock file: %+v", *e)
	}
	return nil
}

// IsProcessAlive checks if a process is running. On another host, or for any error but ESRCH, it is.
func IsProcessAlive(pid int, hostname string) bool {
	host, err := os.Hostname()
	if err != nil || !strings.EqualFold(host, hostname) {
		return true
	}
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// Daemon looks at locks as a daemon does before it syncs.
type Daemon struct {
	// Before, if set, runs between the look at a stale lock and its removal.
	Before func()
}

// ShouldSkipDatabase checks if database should be skipped due to lock. It removes a stale lock.
func (d Daemon) ShouldSkipDatabase(beadsDir string) (skip bool, holder string, err error) {
	path := filepath.Join(beadsDir, ".exclusive-lock")
	body, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, "", nil
	}
	if err != nil {
		return true, "", err
	}
	var lock ExclusiveLock
	if err := json.Unmarshal(body, &lock); err != nil {
		return true, "", fmt.Errorf("malformed lock file: %w", err)
	}
	if err := lock.Validate(); err != nil {
		return true, "", err
	}
	if IsProcessAlive(lock.PID, lock.Hostname) {
		return true, lock.Holder, nil
	}
	if d.Before != nil {
		d.Before()
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return true, lock.Holder, err
	}
	return false, lock.Holder, nil
}
