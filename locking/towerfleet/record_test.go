//go:build unix

package towerfleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
)

// TestNames: names are 1 to 128 of a-z, 0-9, _ and -, and begin and end with neither of the
// last two. Another name is locking.ErrKey, and writes nothing.
func TestNames(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		for _, name := range []string{"a", "0", "ab", "money-tracker-production", "a_b--c", strings.Repeat("x", 128)} {
			h := w.acquire(b, name, 0)
			if _, err := os.Stat(w.path(name + ".lock")); err != nil {
				t.Error(err)
			}
			if err := b.Release(w.Context(), h); err != nil {
				t.Error(err)
			}
		}
		for _, name := range []string{"", "A", "aB", "a b", "a/b", "../a", "a.b", "-a", "a-", "_a", "a_", "-", "ä", "a\n", "a\x00", strings.Repeat("x", 129)} {
			if _, _, err := b.TryLock(w.Context(), name, 0); !errors.Is(err, locking.ErrKey) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %v", name, err)
			}
			if _, err := b.Inspect(w.Context(), name); !errors.Is(err, locking.ErrKey) {
				t.Errorf("%q: %v", name, err)
			}
		}
		if files := w.files(); len(files) > 0 {
			t.Errorf("%q", files)
		}
	})
}

// TestFields: a lock file is JSON with all fields of section 3, in the document's order and types.
func TestFields(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Actor: "me", Intent: "deploy", IntentVersion: "1.2", HostID: "h", RequestID: "req_1", Metadata: map[string]any{"job": 7}})
		now := formatTime(time.Now())
		w.acquire(b, "n", 90*time.Second)
		text := w.read("n.lock")
		got, want := shape(t, text), shape(t, example(t, `"lock_version"`, 1))
		if !strings.HasPrefix(got, strings.TrimSuffix(want, "}}")) {
			t.Errorf("shape\n%s\nwant\n%s", got, want)
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(text), &fields); err != nil {
			t.Fatal(err)
		}
		for f, want := range map[string]any{
			"lock_version": "v1", "lock_name": "n", "request_id": "req_1", "actor": "me", "intent": "deploy", "intent_version": "1.2",
			"host_id": "h", "pid": float64(os.Getpid()), "created_at": now, "last_heartbeat_at": now, "ttl_seconds": 90.0,
		} {
			if fields[f] != want {
				t.Errorf("%s is %v, want %v", f, fields[f], want)
			}
		}
		if m := fields["metadata"].(map[string]any); m["job"] != 7.0 {
			t.Errorf("%v", m)
		}
	})
}

// TestTokenIsSecret: a reader of the lock file can't make its handle.
func TestTokenIsSecret(t *testing.T) {
	in(t, func(w *world) {
		h := w.acquire(w.backend(Options{}), "n", 0)
		if strings.Contains(w.read("n.lock"), h.Token()) {
			t.Error("the lock file has the token")
		}
	})
}

// TestTTL: the default ttl is 900 seconds, others are rounded up to seconds, and impossible ones
// are refused.
func TestTTL(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		for i, c := range []struct {
			ttl     time.Duration
			seconds int64
		}{{0, 900}, {1, 1}, {time.Second, 1}, {1500 * time.Millisecond, 2}, {time.Hour, 3600}} {
			name := fmt.Sprint("n", i)
			if h := w.acquire(b, name, c.ttl); h.TTL() != time.Duration(c.seconds)*time.Second {
				t.Errorf("%s: %s", c.ttl, h.TTL())
			}
			if !strings.Contains(w.read(name+".lock"), fmt.Sprintf(`"ttl_seconds": %d,`, c.seconds)) {
				t.Errorf("%s: %s", c.ttl, w.read(name+".lock"))
			}
		}
		for _, ttl := range []time.Duration{-1, -time.Hour, 1<<63 - 1} {
			if _, ok, err := b.TryLock(w.Context(), "x", ttl); ok || err == nil {
				t.Errorf("%s: %v %v", ttl, ok, err)
			}
		}
	})
}

// TestInterval: heartbeats come at a third of the ttl, and at least every 30 seconds.
func TestInterval(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{9 * time.Second: 3 * time.Second, 90 * time.Second: 30 * time.Second, DefaultTTL: 30 * time.Second} {
		if got := Interval(ttl); got != want {
			t.Errorf("%s: %s", ttl, got)
		}
	}
}

// TestStaleByHeartbeat: a lock is stale if its last heartbeat is more than ttl_seconds ago. One in
// the future is live. Neither its creation nor its pid decides.
func TestStaleByHeartbeat(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		for _, c := range []struct {
			ago   time.Duration
			stale bool
		}{{0, false}, {899 * time.Second, false}, {900 * time.Second, false}, {901 * time.Second, true}, {1000 * time.Hour, true}, {-time.Hour, false}, {-1000 * time.Hour, false}} {
			w.write("n.lock", foreign("n", "req_1", time.Now().Add(-c.ago), 900))
			if info, err := b.Inspect(w.Context(), "n"); err != nil || info.Stale != c.stale {
				t.Errorf("%s ago: %+v %v", c.ago, info, err)
			}
		}
	})
}

// TestPID: a lock is live or stale by its heartbeat, whether a process of its pid runs or not.
func TestPID(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		for _, pid := range []string{fmt.Sprint(os.Getpid()), "1", "0", "-1", "2147483646", "4294967295"} {
			for ago, stale := range map[time.Duration]bool{0: false, time.Hour: true} {
				w.write("n.lock", strings.Replace(foreign("n", "req_1", time.Now().Add(-ago), 900), "12345,", pid+",", 1))
				if held := w.refused(b, "n"); held.Stale != stale || held.Trouble != "" {
					t.Errorf("pid %s, %s ago: %v", pid, ago, held)
				}
			}
		}
	})
}
