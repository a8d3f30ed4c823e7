//go:build unix

package beads_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/beadsdaemon"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/beads"
	"github.com/repolock/repolock/locking/lockingtest"
)

// TestConformance: the backend keeps the contract, and leaves nothing in the directory.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	lockingtest.Run(t, lockingtest.Config{
		Rounds:  rounds.Fewer(1000, 100),
		New:     func(t *testing.T) locking.Backend { return client(t, dir, beads.Options{}) },
		Keys:    []string{beads.Key},
		BadKeys: []string{"", "nightly", "../" + beads.Key},
		TTL:     time.Millisecond,
	})
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestConformanceInRealTime: the same with the machine's clock, which costs 100 ms a lock.
func TestConformanceInRealTime(t *testing.T) {
	dir := t.TempDir()
	lockingtest.Run(t, lockingtest.Config{
		New: func(t *testing.T) locking.Backend {
			b, err := beads.New(dir, beads.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Keys: []string{beads.Key}, TTL: time.Millisecond, Rounds: 10,
	})
}

// TestStale: a lock is stale if its host is this one without regard to case and its process
// doesn't exist here, even if it runs in another pid namespace with the same hostname. Every other
// lock is held, and stays as it is.
func TestStale(t *testing.T) {
	dead := ended(t)
	host, _ := os.Hostname()
	for name, c := range map[string]struct {
		change func(map[string]any)
		stale  bool
	}{
		"alive":            {func(map[string]any) {}, false},
		"ended":            {func(m map[string]any) { m["pid"] = dead }, true},
		"ended, more":      {func(m map[string]any) { m["pid"] = dead; m["more"] = []int{1} }, true},
		"ended, upper":     {func(m map[string]any) { m["pid"] = dead; m["hostname"] = strings.ToUpper(host) }, true},
		"ended, remote":    {func(m map[string]any) { m["pid"] = dead; m["hostname"] = host + ".example" }, false},
		"ended, no host":   {func(m map[string]any) { m["pid"] = dead; delete(m, "hostname") }, false},
		"ended, no holder": {func(m map[string]any) { m["pid"] = dead; m["holder"] = "" }, false},
		"ended, no date":   {func(m map[string]any) { m["pid"] = dead; delete(m, "started_at") }, false},
		"no pid":           {func(m map[string]any) { delete(m, "pid") }, false},
		"negative pid":     {func(m map[string]any) { m["pid"] = -dead }, false},
		"large pid":        {func(m map[string]any) { m["pid"] = dead + 1<<40 }, false},
		"pid is text":      {func(m map[string]any) { m["pid"] = "1" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			body := put(t, dir, c.change)
			b := client(t, dir, beads.Options{})
			info, err := b.Inspect(t.Context(), beads.Key)
			if err != nil || info == nil || info.Stale != c.stale {
				t.Fatalf("%+v, %v", info, err)
			}
			h, ok, err := b.TryLock(t.Context(), beads.Key, ttl)
			if ok != c.stale || err != nil {
				t.Fatalf("acquired %v, %v", ok, err)
			}
			if !ok && content(t, dir) != body {
				t.Error("the lock was changed")
			}
			if ok && b.Renew(t.Context(), h) != nil {
				t.Error("the new lock isn't held")
			}
		})
	}
}

// TestFile: the file has the fields of the format, which the daemon's rules accept.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	pid := os.Getppid()
	b := client(t, dir, beads.Options{Holder: "nightly", Version: "1.2", PID: pid})
	h := acquire(t, b)
	var got map[string]any
	if err := json.Unmarshal([]byte(content(t, dir)), &got); err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	if len(got) != 5 || got["holder"] != "nightly" || got["version"] != "1.2" ||
		got["pid"] != float64(pid) || got["hostname"] != host {
		t.Errorf("%v", got)
	}
	if skip, holder, err := (beadsdaemon.Daemon{}).ShouldSkipDatabase(dir); !skip || holder != "nightly" || err != nil {
		t.Errorf("the daemon: %v, %q, %v", skip, holder, err)
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
	if skip, _, err := (beadsdaemon.Daemon{}).ShouldSkipDatabase(dir); skip || err != nil {
		t.Errorf("the daemon after the release: %v, %v", skip, err)
	}
}

// TestLoss: Renew and Release return ErrLost once another tool has removed, replaced or
// overwritten the file, and leave the other's lock as it is.
func TestLoss(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, dir string){
		"removed":     func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, beads.Key)) },
		"overwritten": func(t *testing.T, dir string) { put(t, dir, func(map[string]any) {}) },
		"emptied":     func(t *testing.T, dir string) { write(t, dir, "") },
		"replaced by its copy": func(t *testing.T, dir string) {
			body := content(t, dir)
			_ = os.Remove(filepath.Join(dir, beads.Key))
			write(t, dir, body)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, renew := range []bool{true, false} {
				dir := t.TempDir()
				b := client(t, dir, beads.Options{})
				h := acquire(t, b)
				harm(t, dir)
				before, _ := os.ReadFile(filepath.Join(dir, beads.Key))
				if renew {
					if err := b.Renew(t.Context(), h); !errors.Is(err, locking.ErrLost) {
						t.Errorf("renew: %v", err)
					}
				}
				if err := b.Release(t.Context(), h); !errors.Is(err, locking.ErrLost) {
					t.Errorf("release: %v", err)
				}
				if after, _ := os.ReadFile(filepath.Join(dir, beads.Key)); string(after) != string(before) {
					t.Errorf("%q became %q", before, after)
				}
			}
		})
	}
}

// TestNew: the directory must exist, and be one.
func TestNew(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "")
	for _, path := range []string{filepath.Join(dir, "none"), filepath.Join(dir, beads.Key)} {
		_, err := beads.New(path, beads.Options{})
		if !errors.Is(err, locking.ErrUnfit) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := beads.New(dir, beads.Options{PID: -1}); err == nil {
		t.Error("a pid that names no process was taken")
	}
}

// TestDirectoryGone: without its directory, a lock is neither free nor acquired.
func TestDirectoryGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".beads")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b := client(t, dir, beads.Options{})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := b.TryLock(t.Context(), beads.Key, ttl); ok || err == nil {
		t.Errorf("acquired %v, %v", ok, err)
	}
	if info, err := b.Inspect(t.Context(), beads.Key); err == nil {
		t.Errorf("inspect: %+v", info)
	}
}

// TestCleanup: Cleanup removes a stale lock and files of a process that was killed a day ago,
// and nothing else.
func TestCleanup(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, func(m map[string]any) { m["pid"] = ended(t) })
	for _, name := range []string{"old", "new"} {
		path := filepath.Join(dir, beads.Key+".repolock-"+name+".tmp")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if name == "old" {
			day := clock.System{}.Now().Add(-25 * time.Hour)
			if err := os.Chtimes(path, day, day); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := client(t, dir, beads.Options{}).Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 1 || !strings.Contains(left[0].Name(), "new") {
		t.Errorf("left: %v", left)
	}
}

// TestFlockIsWaitedFor: while another process has the flock of the directory, TryLock waits
// until its context ends, and holds nothing.
func TestFlockIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, ok, err := client(t, dir, beads.Options{}).TryLock(ctx, beads.Key, ttl)
	if ok || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), dir) {
		t.Errorf("acquired %v, %v", ok, err)
	}
}
