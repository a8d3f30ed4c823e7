package events

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
)

// TestStale: only a single lock of another system, with a ttl that is over, stays until a person breaks it.
func TestStale(t *testing.T) {
	h := replock.Info{Verdict: replock.Stale, TTL: time.Minute, Keys: []string{"redis://h?key=k"}}
	change := func(f func(*replock.Info)) []replock.Info { i := h; f(&i); return []replock.Info{i} }
	for name, c := range map[string]struct {
		holders []replock.Info
		want    bool
	}{
		"none":          {nil, false},
		"stale":         {[]replock.Info{h}, true},
		"two":           {[]replock.Info{h, h}, false},
		"live":          {change(func(i *replock.Info) { i.Verdict = replock.Live }), false},
		"without a ttl": {change(func(i *replock.Info) { i.TTL = 0 }), false},
		"elsewhere":     {change(func(i *replock.Info) { i.Keys = []string{"x"} }), false},
	} {
		_, ok := Stale("redis://h?key=k", c.holders)
		assert.Equal(t, ok, c.want, name)
	}
}

// TestHolders: the last heartbeat of a lock is its mod time, or else what its expiry shows, or else unknown.
func TestHolders(t *testing.T) {
	at := time.Date(2026, 3, 7, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		info replock.Info
		want time.Time
	}{
		"by its mod time": {replock.Info{ModTime: at, Expires: at.Add(time.Hour), TTL: time.Minute}, at},
		"by its expiry":   {replock.Info{Expires: at.Add(time.Minute), TTL: time.Minute}, at},
		"unknown":         {replock.Info{TTL: time.Minute}, time.Time{}},
	} {
		got := Holder(c.info).LastHeartbeatAt
		assert.That(t, (got == nil) == c.want.IsZero() && (got == nil || got.Equal(c.want)), "%s: %v", name, got)
	}
}

// TestRemovedRecords: the record of a removal has the whole body, if that is known, and tells why the lock was removed.
func TestRemovedRecords(t *testing.T) {
	r := removed(audit.Record{Event: audit.Stolen}, replock.Info{})
	assert.That(t, r.Reason == "stale" && r.PreviousLock == nil && r.PreviousLockHash == "" && r.Action == "", "%+v", r)
	r = removed(audit.Record{Event: audit.Broken, Error: "down"}, replock.Info{Body: []byte("\x01x")})
	assert.That(t, r.Reason == "" && string(r.PreviousLock) == `"AXg="` && strings.HasPrefix(r.PreviousLockHash, "sha256:") && r.Action == audit.ManualCleanup, "%+v", r)
	r = removed(audit.Record{Event: audit.Broken}, replock.Info{Body: []byte("{}")})
	assert.That(t, string(r.PreviousLock) == "{}" && r.Action == "", "%+v", r)
}

// TestReadMetrics: a file that is too long to be ours counts as none.
func TestReadMetrics(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.prom")
	for _, n := range []int{0, maxMetrics, maxMetrics + 1} {
		assert.OK(t, os.WriteFile(file, []byte(strings.Repeat("x", n)), 0o600))
		text, err := readMetrics(file)
		assert.That(t, err == nil && len(text) == n%(maxMetrics+1), "%d bytes of %d, %v", len(text), n, err)
	}
	text, err := readMetrics(file + "x")
	assert.That(t, text == nil && err == nil, "%q, %v", text, err)
}
