//go:build unix

package beadsdaemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestDocument has the rules of EXCLUSIVE_LOCK in its words, and checks the daemon by
// each. EPERM has a test beside locking/beads.
func TestDocument(t *testing.T) {
	ended := exec.Command("true")
	assert.OK(t, ended.Run())
	host, err := os.Hostname()
	assert.OK(t, err)
	lock := func(pid int, host string) string {
		return fmt.Sprintf(`{"holder": "vc-executor", "pid": %d, "hostname": %q, `+
			`"started_at": "2025-10-25T12:00:00Z", "version": "1.0.0"}`, pid, host)
	}
	without := func(name string) string { return strings.Replace(lock(ended.Process.Pid, host), name, "", 1) }
	dead, living := ended.Process.Pid, os.Getpid()
	const (
		fails   = "malformed lock file: "
		invalid = "invalid lock file: "
	)
	for _, c := range []struct {
		rule, body string
		syncs      bool
		says       string // the error
	}{
		{"No lock file: Server proceeds normally with sync operations", "", true, ""},
		{"Valid lock (process alive): Server skips all operations for this database", lock(living, host), false, ""},
		{"Stale lock (process dead): Server removes the lock and proceeds", lock(dead, host), true, ""},
		{"Malformed lock: Server fails safe and skips the database", "{", false, fails},
		{"The hostname matches the current machine (case-insensitive)", lock(dead, strings.ToUpper(host)), true, ""},
		{"AND The PID does not exist on the local system (returns ESRCH)", lock(living, host), false, ""},
		{"Remote locks (different hostname) are always assumed to be valid", lock(dead, host+".example"), false, ""},
		{"holder (string, required)", without("vc-executor"), false, invalid},
		{"pid (int, required)", lock(0, host), false, invalid},
		{"hostname (string, required)", lock(dead, ""), false, invalid},
		{"started_at (RFC3339 timestamp, required)", without("started_at"), false, invalid},
		{"started_at (RFC3339 timestamp)", without("2025-10-25T"), false, fails},
		{"version (string, optional)", without("version"), true, ""},
	} {
		t.Run(c.rule, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, ".exclusive-lock")
			if c.body != "" {
				assert.OK(t, os.WriteFile(path, []byte(c.body), 0o644))
			}
			skip, _, err := Daemon{}.ShouldSkipDatabase(dir)
			assert.That(t, skip != c.syncs && (err == nil) == (c.says == ""), "skips: %v, %v, want %q", skip, err, c.says)
			assert.That(t, err == nil || strings.HasPrefix(err.Error(), c.says), "%v, want %q", err, c.says)
			body, err := os.ReadFile(path)
			assert.That(t, c.syncs == os.IsNotExist(err) && (c.syncs || string(body) == c.body), "the file: %q, %v", body, err)
		})
	}
}
