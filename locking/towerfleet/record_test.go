//go:build unix

package towerfleet

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
)

// TestTTL: the default ttl is 900 seconds, others are rounded up to seconds, and impossible ones
// are refused. Heartbeats come at a third of the ttl, and at least every 30 seconds.
func TestTTL(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		for i, c := range []struct {
			ttl      time.Duration
			seconds  int64
			interval time.Duration
		}{
			{0, 900, 30 * time.Second}, {1, 1, time.Second / 3}, {time.Second, 1, time.Second / 3}, {1500 * time.Millisecond, 2, time.Second * 2 / 3},
			{9 * time.Second, 9, 3 * time.Second}, {90 * time.Second, 90, 30 * time.Second}, {time.Hour, 3600, 30 * time.Second},
		} {
			name := fmt.Sprint("n", i)
			if h := lockcheck.Acquire(w, b, name, c.ttl); h.TTL() != time.Duration(c.seconds)*time.Second || interval(h.TTL()) != c.interval {
				t.Errorf("%s: %s, heartbeats each %s", c.ttl, h.TTL(), interval(h.TTL()))
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

// TestStaleByHeartbeat: a lock is stale if its last heartbeat is more than ttl_seconds ago. One in
// the future is live. Neither its creation nor its pid decides, whether a process of that runs or not.
func TestStaleByHeartbeat(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		for _, c := range []struct {
			ago   time.Duration
			stale bool
		}{{0, false}, {899 * time.Second, false}, {900 * time.Second, false}, {901 * time.Second, true}, {1000 * time.Hour, true}, {-time.Hour, false}, {-1000 * time.Hour, false}} {
			for _, pid := range []string{fmt.Sprint(os.Getpid()), "1", "0", "-1", "2147483646", "4294967295"} {
				w.write("n.lock", strings.Replace(foreign("n", "req_1", time.Now().Add(-c.ago), 900), "12345,", pid+",", 1))
				if held := w.refused(b, "n"); held.Stale != c.stale || held.Unreadable != "" {
					t.Errorf("pid %s, %s ago: %+v", pid, c.ago, held)
				}
			}
		}
	})
}

// malformed returns lock files of the name n that no reader can trust.
func malformed() map[string]string {
	good := foreign("n", "req_1", time.Now(), 900)
	files := map[string]string{
		"empty": "", "spaces": "  \n", "text": "held", "null": "null", "array": "[" + good + "]", "string": `"x"`,
		"cut": good[:len(good)/2], "cut at the end": strings.TrimSuffix(good, "}\n"), "twice": good + good, "trailing": good + "x",
		"zeros": strings.Repeat("\x00", 100), "binary": "\xff\xfe{}", "large": good + strings.Repeat(" ", maxSize),
		"other name": foreign("m", "req_1", time.Now(), 900), "no request": foreign("n", "", time.Now(), 900),
		"path as request": foreign("n", "../x", time.Now(), 900), "long request": foreign("n", strings.Repeat("x", 129), time.Now(), 900),
		"line in request": foreign("n", "a\nb", time.Now(), 900), "no ttl": foreign("n", "req_1", time.Now(), 0),
		"negative ttl": foreign("n", "req_1", time.Now(), -1), "endless ttl": foreign("n", "req_1", time.Now(), 1<<60),
		"field twice":      strings.Replace(good, "{", `{"ttl_seconds": 1, `, 1),
		"version":          strings.Replace(good, `"v1"`, `"v2"`, 1),
		"version a number": strings.Replace(good, `"v1"`, `1`, 1),
		"upper case":       strings.Replace(good, `"ttl_seconds"`, `"TTL_SECONDS"`, 1),
		"ttl a string":     strings.Replace(good, `"ttl_seconds": 900`, `"ttl_seconds": "900"`, 1),
		"ttl a fraction":   strings.Replace(good, `"ttl_seconds": 900`, `"ttl_seconds": 900.5`, 1),
		"pid a string":     strings.Replace(good, `12345,`, `"12345",`, 1),
		"metadata a list":  strings.Replace(good, `"metadata": {`, `"metadata": [], "y": {`, 1),
	}
	at := `"` + formatTime(time.Now()) + `"`
	for i, bad := range []string{`"now"`, `""`, `1`, `null`, `"2025-12-18"`, `"2025-12-18 10:30:10"`, `"2025-12-18T10:30:10"`, `"2025-12-18T10:30:10+02:00"`, `"2025-13-18T10:30:10Z"`} {
		files[fmt.Sprintf("heartbeat %d", i)] = strings.Replace(good, `"last_heartbeat_at" : `+at, `"last_heartbeat_at" : `+bad, 1)
		files[fmt.Sprintf("creation %d", i)] = strings.Replace(good, `"created_at": `+at, `"created_at": `+bad, 1)
	}
	for f := range new(record).required() {
		files["no "+f] = strings.Replace(good, `"`+f+`"`, `"x_`+f+`"`, 1)
	}
	return files
}

// TestMalformedIsHeld: a file that can't be trusted is a held lock, which is refused with one
// line, never stolen or broken as stale, and left as it is. A person who has seen it can break the
// lock, only if the file is as it was, and the event has the file's hash.
func TestMalformedIsHeld(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Force: true})
		files := malformed()
		for why, text := range files {
			w.events = nil
			w.write("n.lock", text)
			time.Sleep(time.Hour) // old enough to be stale
			seen := w.refused(b, "n")
			if field, ok := strings.CutPrefix(why, "no "); ok && new(record).required()[field] != nil {
				assert.Equal(t, seen.Unreadable, "it has no "+field)
			}
			assert.Need(t, seen.Unreadable != "" && !strings.Contains(seen.Unreadable, "\n") && !seen.Stale, "%s: %+v", why, seen)
			lockcheck.Breaks(t, b, seen, true, false)
			assert.That(t, w.read("n.lock") == text, "%s: was written", why)
			w.write("n.lock", "{"+text)
			lockcheck.Breaks(t, b, seen, false, false)
			w.left(0, "n.lock")
			seen = lockcheck.Seen(w, b, "n")
			lockcheck.Breaks(t, b, seen, false, true)
			w.left(1)
			hash := w.events[0].(audit.Record).PreviousLockHash
			assert.That(t, len(text) >= maxSize || hash == sum("{"+text), "%s: %s", why, hash)
			stolen := `{"event":"lock_stolen","request_id":"` + b.opts.RequestID + `","timestamp":"` + formatTime(time.Now()) + `","lock_name":"n",` +
				`"previous_lock":{"request_id":"","actor":"","intent":"","created_at":"","last_heartbeat_at":"","host_id":"","pid":0},` +
				`"previous_lock_hash":"` + hash + `","reason":"unreadable_lock_forced"}`
			if out, err := json.Marshal(w.events[0]); err != nil || string(out) != stolen {
				t.Errorf("%s: %s %v, want %s", why, out, err, stolen)
			}
		}
	})
}

// TestNoHeartbeatToReplace: a file without a heartbeat gets none.
func TestNoHeartbeatToReplace(t *testing.T) {
	for _, text := range []string{`{}`, `{"x": {"last_heartbeat_at": "x"}}`, `{`} {
		got, err := withHeartbeat([]byte(text), time.Now())
		assert.That(t, got == nil && err != nil, "%s: %s, %v", text, got, err)
	}
}

func sum(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

// TestIrregularIsHeld: a file that isn't regular holds the lock and isn't broken. No symbolic link is followed.
func TestIrregularIsHeld(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Force: true})
		w.write("target", foreign("link", "req_1", time.Now().Add(-time.Hour), 1))
		if err := fault.Join(os.Mkdir(w.path("dir.lock"), 0o700), os.Symlink("target", w.path("link.lock")),
			os.Symlink("none", w.path("dangling.lock")), syscall.Mkfifo(w.path("fifo.lock"), 0o600)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"dir", "link", "dangling", "fifo"} {
			held := w.refused(b, name)
			ok, err := b.Break(w.Context(), held, false)
			if held.Unreadable == "" || ok || err == nil || !strings.Contains(err.Error(), w.path(name+".lock")) {
				t.Errorf("%s: broken %v, %v", name, ok, err)
			}
		}
		w.left(0, "dangling.lock", "dir.lock", "fifo.lock", "link.lock", "target")
	})
}
