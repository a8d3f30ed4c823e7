//go:build unix

package beads

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// TestConformance: the backend keeps the contract, and leaves nothing in the directory. Where the directory
// has no flock, the link alone excludes.
func TestConformance(t *testing.T) {
	for name, without := range map[string]func(*testing.T){"flock": func(*testing.T) {}, "no flock": noFlock} {
		t.Run(name, func(t *testing.T) {
			without(t)
			dir := t.TempDir()
			lockingtest.Run(t, lockingtest.Config{
				Rounds: rounds.Fewer(1000, 100),
				New:    func(t *testing.T) locking.Backend { return client(t, dir, Options{}) },
				Lose: func(t *testing.T, key string) {
					t.Helper()
					assert.OK(t, os.Remove(filepath.Join(dir, key)))
				},
				Keys:    []string{Key},
				BadKeys: []string{"", "nightly", "../" + Key},
				TTL:     time.Millisecond,
			})
			left(t, dir)
		})
	}
}

// TestStale: a lock is stale if its host is this one, ignoring case, and its process doesn't exist here. Every
// other lock is held, stays as it is, and isn't broken as stale, even if its process began long after it.
func TestStale(t *testing.T) {
	dead := ended(t)
	host, _ := os.Hostname()
	for name, c := range map[string]struct {
		change func(map[string]any)
		stale  bool
	}{
		"alive":         {func(map[string]any) {}, false},
		"alive, older":  {func(m map[string]any) { m["started_at"] = "2001-01-01T00:00:00Z" }, false},
		"ended":         {func(m map[string]any) { m["pid"] = dead }, true},
		"ended, more":   {func(m map[string]any) { m["pid"] = dead; m["more"] = []int{1} }, true},
		"ended, upper":  {func(m map[string]any) { m["pid"] = dead; m["hostname"] = strings.ToUpper(host) }, true},
		"ended, remote": {func(m map[string]any) { m["pid"] = dead; m["hostname"] = host + ".example" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			body := put(t, dir, c.change)
			b := client(t, dir, Options{})
			assert.Equal(t, lockcheck.Seen(t, b, Key).Stale, c.stale, "stale")
			if !c.stale {
				lockcheck.Held(t, b, Key)
				lockcheck.Breaks(t, b, lockcheck.Seen(t, b, Key), true, false)
				assert.That(t, lockText(t, dir) == body, "the lock was changed")
				lockcheck.Breaks(t, b, lockcheck.Seen(t, b, Key), false, true)
				return
			}
			lockcheck.Breaks(t, b, lockcheck.Seen(t, b, Key), true, true)
			put(t, dir, c.change)
			lockcheck.Renew(t, b, lockcheck.Acquire(t, b, Key, ttl))
		})
	}
}

// TestFile: the file has the fields of the format, which the daemon's rules accept.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	b := client(t, dir, Options{Version: "1.2"})
	h := lockcheck.Acquire(t, b, Key, ttl)
	var got map[string]any
	assert.OK(t, json.Unmarshal([]byte(lockText(t, dir)), &got))
	host, _ := os.Hostname()
	if len(got) != 5 || got["holder"] != "repolock" || got["version"] != "1.2" ||
		got["pid"] != float64(os.Getpid()) || got["hostname"] != host {
		t.Errorf("%v", got)
	}
	skips(t, dir, "repolock")
	lockcheck.Release(t, b, h)
	skips(t, dir, "")
}

// TestLoss: Renew and Release return ErrLost once another tool has replaced or overwritten the file, and
// leave the other's lock as it is. TestConformance removes the file.
func TestLoss(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, dir string){
		"overwritten": func(t *testing.T, dir string) { put(t, dir, func(map[string]any) {}) },
		"overwritten in part": func(t *testing.T, dir string) {
			write(t, dir, strings.Replace(lockText(t, dir), "repolock", "lockrepo", 1))
		},
		"emptied": func(t *testing.T, dir string) { write(t, dir, "") },
		"replaced by its copy": func(t *testing.T, dir string) {
			body := lockText(t, dir)
			_ = os.Remove(filepath.Join(dir, Key))
			write(t, dir, body)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, renew := range []bool{true, false} {
				dir := t.TempDir()
				b := client(t, dir, Options{})
				h := lockcheck.Acquire(t, b, Key, ttl)
				harm(t, dir)
				before, _ := os.ReadFile(filepath.Join(dir, Key))
				if renew {
					lockcheck.Lost(t, "renew", b.Renew(t.Context(), h))
				}
				lockcheck.Lost(t, "release", b.Release(t.Context(), h))
				if after, _ := os.ReadFile(filepath.Join(dir, Key)); string(after) != string(before) {
					t.Errorf("%q became %q", before, after)
				}
			}
		})
	}
}

// TestOpen: the directory must exist, and be one. Open creates none.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "")
	for _, path := range []string{filepath.Join(dir, "none"), filepath.Join(dir, Key)} {
		_, err := Open(path, Options{})
		assert.That(t, errors.Is(err, locking.ErrUnfit) && strings.Contains(err.Error(), path), "%s: %v", path, err)
	}
	left(t, dir, Key)
}

// TestDirectoryGone: without its directory, a lock is neither free nor acquired.
func TestDirectoryGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".beads")
	assert.OK(t, os.Mkdir(dir, 0o700))
	b := client(t, dir, Options{})
	assert.OK(t, os.Remove(dir))
	_ = lockcheck.Fails(t.Context(), t, b, Key)
	if info, err := b.Inspect(t.Context(), Key); err == nil {
		t.Errorf("inspect: %+v", info)
	}
}

// TestCleanup: Cleanup removes a stale lock and files of a process that was killed a day ago,
// and nothing else.
func TestCleanup(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, func(m map[string]any) { m["pid"] = ended(t) })
	for name, age := range map[string]time.Duration{"old": 25 * time.Hour, "new": 23 * time.Hour} {
		path := filepath.Join(dir, Key+".repolock-"+name+".tmp")
		at := clock.System{}.Now().Add(-age)
		assert.OK(t, fault.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, at, at)))
	}
	assert.OK(t, client(t, dir, Options{}).Cleanup(t.Context()))
	left(t, dir, Key+".repolock-new")
}

// TestStuckFlock: if another process keeps the flock for ever, TryLock gives its file back all
// the same, and Release returns an error and can be called again.
func TestStuckFlock(t *testing.T) {
	real := tryFlock
	t.Cleanup(func() { tryFlock = real })
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var stuck atomic.Bool
		tryFlock = func(f *os.File) (bool, error) { return !stuck.Load(), nil }
		b, err := Open(dir, Options{Clock: leapclock.New()})
		assert.OK(t, err)
		h := lockcheck.Acquire(t, b, Key, 1)
		stuck.Store(true)
		err = b.Release(t.Context(), h)
		if err == nil || errors.Is(err, locking.ErrLost) || !strings.Contains(err.Error(), "flock") {
			t.Errorf("release: %v", err)
		}
		stuck.Store(false)
		lockcheck.Release(t, b, h)
		ctx, cancel := context.WithTimeout(t.Context(), settling/2)
		defer cancel()
		time.AfterFunc(time.Millisecond, func() { stuck.Store(true) })
		assert.Is(t, lockcheck.Fails(ctx, t, b, Key), context.DeadlineExceeded)
		left(t, dir)
	})
}

// TestWithoutFlock: where the directory has no flock, a stale lock stays held, also for Cleanup and Break of
// stale locks. A person can break it, and a free one is acquired and released.
func TestWithoutFlock(t *testing.T) {
	noFlock(t)
	dir := t.TempDir()
	b := client(t, dir, Options{})
	put(t, dir, func(m map[string]any) { m["pid"] = ended(t) })
	lockcheck.Held(t, b, Key)
	assert.Is(t, b.Cleanup(t.Context()), nil)
	seen := lockcheck.Seen(t, b, Key)
	lockcheck.Breaks(t, b, seen, true, false)
	lockcheck.Breaks(t, b, seen, false, true)
	lockcheck.Release(t, b, lockcheck.Acquire(t, b, Key, ttl))
	left(t, dir)
}

// TestResumeRefuses: a lock that another holder can have had, or that Renew has found lost, isn't resumed,
// although the file is the same now. It stays lost, and Release removes the file that is ours.
func TestResumeRefuses(t *testing.T) {
	for name, harm := range map[string]func(path, body string, isLost func()) error{
		"moved away and back": func(path, _ string, _ func()) error {
			return fault.Join(os.Rename(path, path+".x"), os.Rename(path+".x", path))
		},
		"found lost, and back": func(path, _ string, isLost func()) error {
			gone := os.Rename(path, path+".x")
			isLost()
			back := os.Rename(path+".x", path)
			isLost()
			return fault.Join(gone, back)
		},
		"overwritten and back": func(path, body string, _ func()) error {
			return fault.Join(os.WriteFile(path, []byte("x"), 0o644), os.WriteFile(path, []byte(body), 0o644))
		},
		"its mode changed": func(path, _ string, _ func()) error { return os.Chmod(path, 0o600) },
		"back with its time": func(path, body string, _ func()) error {
			was, err := os.Stat(path)
			assert.OK(t, err)
			return fault.Join(os.WriteFile(path, []byte("x"), 0o644), os.WriteFile(path, []byte(body), 0o644),
				os.Chtimes(path, was.ModTime(), was.ModTime()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := client(t, dir, Options{})
			h := lockcheck.Acquire(t, b, Key, ttl)
			path := filepath.Join(dir, Key)
			tick(t, path)
			assert.OK(t, harm(path, lockText(t, dir), func() { lockcheck.Lost(t, "renew", b.Renew(t.Context(), h)) }))
			lockcheck.Lost(t, "resume", b.Resume(t.Context(), h))
			for range 2 {
				lockcheck.Lost(t, "renew", b.Renew(t.Context(), h))
				lockcheck.Lost(t, "release", b.Release(t.Context(), h))
			}
			left(t, dir)
		})
	}
}
