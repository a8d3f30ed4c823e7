//go:build unix

package beads

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/beadsdaemon"
)

const ttl = time.Minute

// leap is a clock whose waits of 50 ms and more end when Until has returned: so what a test lets
// happen in that time is in time, however slow the machine is.
type leap struct {
	clock.System
	until func()
	leapt atomic.Int64
}

func (c *leap) Elapsed() time.Duration { return c.System.Elapsed() + time.Duration(c.leapt.Load()) }

func (c *leap) After(d time.Duration) <-chan time.Time {
	if d < 50*time.Millisecond {
		return c.System.After(d)
	}
	if c.until != nil {
		c.until()
	}
	c.leapt.Add(int64(d))
	ready := make(chan time.Time, 1)
	ready <- c.Now()
	return ready
}

// client waits no real time, unless it has another clock.
func client(t *testing.T, dir string, opts Options) *Backend {
	t.Helper()
	if opts.Clock == nil {
		opts.Clock = new(leap)
	}
	b, err := Open(dir, opts)
	assert.OK(t, err)
	return b
}

// ended returns the pid of a process that has ended.
func ended(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	assert.OK(t, cmd.Run())
	return cmd.Process.Pid
}

// put writes a lock as another tool does: fields that are "" are left out.
func put(t *testing.T, dir string, change func(map[string]any)) string {
	t.Helper()
	host, _ := os.Hostname()
	fields := map[string]any{
		"holder": "vc-executor", "pid": os.Getpid(), "hostname": host,
		"started_at": "2025-10-25T12:00:00Z", "version": "1.0.0",
	}
	change(fields)
	body, err := json.Marshal(fields)
	assert.OK(t, err)
	return write(t, dir, string(body))
}

func write(t *testing.T, dir, body string) string {
	t.Helper()
	path := filepath.Join(dir, Key)
	assert.OK(t, os.WriteFile(path, []byte(body), 0o644))
	return body
}

func lockText(t *testing.T, dir string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(dir, Key))
	assert.OK(t, err)
	return string(body)
}

// left checks which files are in a directory, and in the list are those whose names begin so.
func left(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	fit := err == nil && len(entries) == len(names)
	for i := 0; fit && i < len(names); i++ {
		fit = strings.HasPrefix(entries[i].Name(), names[i])
	}
	assert.That(t, fit, "left %v, %v, want %q", entries, err, names)
}

// skips checks what the daemon does beside a lock of this holder, or of none.
func skips(t *testing.T, dir, want string) {
	t.Helper()
	if skip, holder, err := (beadsdaemon.Daemon{}).ShouldSkipDatabase(dir); skip != (want != "") || holder != want || err != nil {
		t.Errorf("the daemon: %v, %q, %v, want %q", skip, holder, err, want)
	}
}

// tick waits until the clock of the file system has moved on since a file was changed.
func tick(t *testing.T, path string) {
	t.Helper()
	was, err := os.Stat(path)
	assert.OK(t, err)
	probe := filepath.Join(t.TempDir(), "probe")
	for now := was; !now.ModTime().After(was.ModTime()); {
		<-time.After(time.Millisecond)
		assert.OK(t, os.WriteFile(probe, nil, 0o600))
		if now, err = os.Stat(probe); err != nil {
			t.Fatal(err)
		}
	}
}

func noFlock(t *testing.T) {
	real := tryFlock
	tryFlock = func(*os.File) (bool, error) { return false, errors.ErrUnsupported }
	t.Cleanup(func() { tryFlock = real })
}
