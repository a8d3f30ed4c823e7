//go:build unix

package beads

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/locking"
)

// TestSkip: a server continues without a lock, and after the lock of an ended process of this machine, which is
// removed. It skips all others, and they stay.
func TestSkip(t *testing.T) {
	host, _ := os.Hostname()
	dead := ended(t)
	for name, c := range map[string]struct {
		put     func(map[string]any)
		skip    bool
		removes bool
		why     string
	}{
		"alive":            {func(m map[string]any) {}, true, false, fmt.Sprintf("vc-executor on %s (pid %d)", host, os.Getpid())},
		"dead":             {func(m map[string]any) { m["pid"] = dead }, false, true, fmt.Sprintf("removed the lock of vc-executor on %s (pid %d), whose process has ended", host, dead)},
		"dead, other case": {func(m map[string]any) { m["pid"], m["hostname"] = dead, strings.ToUpper(host) }, false, true, "removed the lock of "},
		"foreign":          {func(m map[string]any) { m["pid"], m["hostname"] = dead, "elsewhere" }, true, false, "only that host can find out"},
		"no pid":           {func(m map[string]any) { delete(m, "pid") }, true, false, "malformed: 0 is no pid"},
		"no hostname":      {func(m map[string]any) { m["pid"] = dead; delete(m, "hostname") }, true, false, "malformed: it has no hostname"},
		"hostile holder":   {func(m map[string]any) { m["holder"] = "a\nb\x1b[31m" }, true, false, "on " + host},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			body := put(t, dir, c.put)
			skip, why, err := Skip(t.Context(), dir)
			assert.OK(t, err)
			if skip != c.skip || !strings.Contains(why, c.why) || strings.ContainsAny(why, "\n\x1b") {
				t.Errorf("%v, %q, want %v, %q", skip, why, c.skip, c.why)
			}
			if c.removes {
				left(t, dir)
				return
			}
			left(t, dir, Key)
			assert.Equal(t, lockText(t, dir), body, "the lock")
		})
	}
	skip, why, err := Skip(t.Context(), t.TempDir())
	assert.That(t, !skip && why == "" && err == nil, "without a lock: %v, %q, %v", skip, why, err)
}

// TestSkipFailsClosed: a server skips what it can't find out.
func TestSkipFailsClosed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "lock")
	skip, why, err := Skip(t.Context(), dir)
	assert.That(t, skip && err == nil && strings.Contains(why, Key+": malformed"), "malformed: %v, %q, %v", skip, why, err)

	skip, _, err = Skip(t.Context(), filepath.Join(dir, "gone"))
	assert.That(t, skip, "a directory that is gone isn't skipped")
	assert.Is(t, err, locking.ErrUnfit)

	b := client(t, t.TempDir(), Options{})
	assert.OK(t, os.Remove(b.dir))
	skip, _, err = b.skip(t.Context())
	assert.That(t, skip && err != nil, "a directory that goes away: %v, %v", skip, err)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	skip, _, err = Skip(ended, dir)
	assert.That(t, skip && errors.Is(err, context.Canceled), "%v, %v", skip, err)
}

// TestSkipWithoutFlock: on a file system without flock a stale lock stays, because its removal could hit a newer one.
func TestSkipWithoutFlock(t *testing.T) {
	noFlock(t)
	dir := t.TempDir()
	put(t, dir, func(m map[string]any) { m["pid"] = ended(t) })
	skip, why, err := Skip(t.Context(), dir)
	assert.That(t, skip && err == nil && strings.Contains(why, "no flock"), "%v, %q, %v", skip, why, err)
	left(t, dir, Key)
}

// TestSkipFollowsTheRedirect: a server of a worktree sees the lock of the main repository.
func TestSkipFollowsTheRedirect(t *testing.T) {
	main, tree := worktree(t, "../main/.beads")
	put(t, main, func(map[string]any) {})
	skip, why, err := Skip(t.Context(), tree)
	assert.That(t, skip && err == nil, "%v, %q, %v", skip, why, err)
}

// TestSkipLooksAgain: if a lock replaces the stale one before Skip removes that, or follows it afterwards, the lock
// stays, and the server skips the database.
func TestSkipLooksAgain(t *testing.T) {
	for _, after := range []bool{true, false} {
		dir := t.TempDir()
		put(t, dir, func(m map[string]any) { m["pid"] = ended(t) })
		acquired := false
		acquire := func() {
			if !acquired {
				acquired = true
				put(t, dir, func(map[string]any) {})
			}
		}
		opts := Options{}
		if after {
			opts.Replaced = func(*locking.Info) { acquire() }
		} else {
			real := tryFlock
			t.Cleanup(func() { tryFlock = real })
			tryFlock = func(f *os.File) (bool, error) { acquire(); return real(f) }
		}
		skip, _, err := client(t, dir, opts).skip(t.Context())
		assert.That(t, acquired && skip && err == nil, "after the removal %v: %v, %v, %v", after, acquired, skip, err)
		left(t, dir, Key)
	}
}

// TestReplaced: TryLock reports a stale lock that it removes, and no other.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	dead := ended(t)
	var told []*locking.Info
	b := client(t, dir, Options{Replaced: func(i *locking.Info) { told = append(told, i) }})
	h, ok, err := b.TryLock(t.Context(), Key, ttl)
	assert.Need(t, ok && err == nil, "%v, %v", ok, err)
	assert.OK(t, b.Release(t.Context(), h))
	assert.Equal(t, len(told), 0, "reports of an absent lock")
	put(t, dir, func(m map[string]any) { m["pid"] = dead })
	_, ok, err = b.TryLock(t.Context(), Key, ttl)
	assert.Need(t, ok && err == nil, "%v, %v", ok, err)
	assert.That(t, len(told) == 1 && told[0].PID == dead && told[0].Holder == "vc-executor" && told[0].Stale, "%+v", told)
}

// TestRemote: Inspect marks the lock of another host, and no other.
func TestRemote(t *testing.T) {
	dir := t.TempDir()
	b := client(t, dir, Options{})
	for host, want := range map[string]bool{"elsewhere": true, strings.ToUpper(b.host): false} {
		put(t, dir, func(m map[string]any) { m["hostname"] = host })
		i, err := b.Inspect(t.Context(), Key)
		assert.OK(t, err)
		assert.Equal(t, i.Remote, want, host)
	}
}
