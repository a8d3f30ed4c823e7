//go:build unix

package beads_test

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

// The daemon below isn't that of beads. We have written it after the rules and the names of
// docs/EXCLUSIVE_LOCK.md of beads ("Daemon Behavior", "Stale Lock Detection", "API Reference").

// ExclusiveLock is the file.
type ExclusiveLock struct {
	Holder    string    `json:"holder"`
	PID       int       `json:"pid"`
	Hostname  string    `json:"hostname"`
	StartedAt time.Time `json:"started_at"`
	Version   string    `json:"version"`
}

// Validate checks the required fields.
func (e *ExclusiveLock) Validate() error {
	if e.Holder == "" || e.PID <= 0 || e.Hostname == "" || e.StartedAt.IsZero() {
		return fmt.Errorf("invalid lock: %+v", *e)
	}
	return nil
}

// IsProcessAlive treats all but ESRCH on this host as alive.
func IsProcessAlive(pid int, hostname string) bool {
	host, err := os.Hostname()
	if err != nil || !strings.EqualFold(host, hostname) {
		return true
	}
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// daemon removes stale locks. before runs between its look and its removal.
type daemon struct{ before func() }

// ShouldSkipDatabase is what the daemon asks at the start of each sync cycle.
func (d daemon) ShouldSkipDatabase(beadsDir string) (skip bool, holder string, err error) {
	path := filepath.Join(beadsDir, ".exclusive-lock")
	body, err := os.ReadFile(path)
	if os.IsNotExist(err) {
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
	if d.before != nil {
		d.before()
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return true, lock.Holder, err
	}
	return false, lock.Holder, nil
}
