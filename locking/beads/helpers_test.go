//go:build unix

package beads_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/beads"
)

const ttl = time.Minute

// client waits no real time, unless it has another clock.
func client(t *testing.T, dir string, opts beads.Options) *beads.Backend {
	t.Helper()
	if opts.Clock == nil {
		opts.Clock = new(beads.Leap)
	}
	b, err := beads.New(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func acquire(t *testing.T, b *beads.Backend) locking.Handle {
	t.Helper()
	h, ok, err := b.TryLock(t.Context(), beads.Key, ttl)
	if !ok || err != nil {
		t.Fatalf("acquired %v, %v", ok, err)
	}
	return h
}

// ended returns the pid of a process that has ended.
func ended(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return write(t, dir, string(body))
}

func write(t *testing.T, dir, body string) string {
	t.Helper()
	path := filepath.Join(dir, beads.Key)
	if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
	return body
}

func content(t *testing.T, dir string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(dir, beads.Key))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
