//go:build unix

package towerfleet

import (
	"encoding/json"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestCreationIsAtomic: the file is complete at the moment when it appears, and it never
// replaces one.
func TestCreationIsAtomic(t *testing.T) {
	in(t, func(w *world) {
		hook(t, &link, func(temp, path string) error {
			if _, err := os.Lstat(path); err == nil {
				t.Error("it is there before the link")
			}
			if f, err := read(temp, "n"); err != nil || f == nil || f.record == nil {
				t.Errorf("incomplete: %+v %v", f, err)
			}
			return os.Link(temp, path)
		})
		w.acquire(w.backend(Options{}), "n", 0)
		if files := w.files(); len(files) != 1 {
			t.Errorf("%q", files)
		}
		other := foreign("m", "req_other", time.Now(), 900)
		hook(t, &link, func(temp, path string) error { // another program creates it after our look
			w.write("m.lock", other)
			return os.Link(temp, path)
		})
		b := w.backend(Options{})
		w.refused(b, "m")
		if got := w.read("m.lock"); got != other {
			t.Errorf("replaced by %s", got)
		}
	})
}

// TestNoLinks: a file system without hard links creates a lock exclusively, too.
func TestNoLinks(t *testing.T) {
	in(t, func(w *world) {
		other := foreign("m", "req_other", time.Now(), 900)
		hook(t, &link, func(_, path string) error {
			if strings.HasSuffix(path, "m.lock") {
				w.write("m.lock", other)
			}
			return syscall.EPERM
		})
		b := w.backend(Options{})
		h := w.acquire(b, "n", 0)
		w.refused(b, "n")
		w.refused(b, "m")
		if got := w.read("m.lock"); got != other {
			t.Errorf("replaced by %s", got)
		}
		if err := b.Release(w.Context(), h); err != nil {
			t.Error(err)
		}
	})
}

// TestNeverTwo: of many that acquire at once, each with its own Backend, exactly one succeeds:
// a free lock, and a stale one.
func TestNeverTwo(t *testing.T) {
	in(t, func(w *world) {
		for round := range 60 {
			if round%2 == 1 {
				w.write("n.lock", foreign("n", "req_old", time.Now().Add(-time.Hour), 60))
			}
			var holders atomic.Int32
			var all sync.WaitGroup
			for range 8 {
				b := w.backend(Options{Force: true, Audit: func(any) {}})
				all.Go(func() {
					_, ok, err := b.TryLock(w.Context(), "n", time.Minute)
					if err != nil {
						t.Error(err)
					}
					if ok {
						holders.Add(1)
					}
				})
			}
			all.Wait()
			if n := holders.Load(); n != 1 {
				t.Fatalf("round %d: %d holders", round, n)
			}
			if files := w.files(); len(files) != 1 {
				t.Fatalf("%q", files)
			}
			if err := os.Remove(w.path("n.lock")); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestBlocked: a live lock is refused with the holder's fields, as JSON in the shape of section
// 4.4, also with Force.
func TestBlocked(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Force: true})
		text := foreign("n", "req_1", time.Now(), 900)
		w.write("n.lock", text)
		held := w.refused(b, "n")
		likeDocument(t, held, `"error": "lock_blocked"`, 1)
		out, _ := json.Marshal(held)
		var got struct {
			Name string    `json:"lock_name"`
			By   blockedBy `json:"held_by"`
		}
		at := formatTime(time.Now())
		if err := json.Unmarshal(out, &got); err != nil || got.Name != "n" || got.By != (blockedBy{"req_1", "claude-code", "deploy-app", at, at}) {
			t.Errorf("%s", out)
		}
		for _, part := range []string{"req_1", "claude-code", "deploy-app", "tower-01", w.path("n.lock")} {
			if !strings.Contains(held.Error(), part) {
				t.Errorf("no %s in %q", part, held)
			}
		}
		if w.read("n.lock") != text || len(w.events) > 0 {
			t.Errorf("%s %v", w.read("n.lock"), w.events)
		}
	})
}

// TestStaleIsRefused: without Force a stale lock is refused with the JSON of section 6.3, and is
// left as it is.
func TestStaleIsRefused(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		beat := time.Now().Add(-30 * time.Minute)
		text := foreign("n", "req_1", beat, 900)
		w.write("n.lock", text)
		held := w.refused(b, "n")
		likeDocument(t, held, `"error": "lock_stale"`, 1)
		out, _ := json.Marshal(held)
		for _, part := range []string{`"age_seconds":1800`, `"ttl_seconds":900`, `"stale_since":"` + formatTime(beat.Add(15*time.Minute)), `"pid":12345`} {
			if !strings.Contains(string(out), part) {
				t.Errorf("no %s in %s", part, out)
			}
		}
		if !strings.Contains(held.Error(), "--force-lock") || w.read("n.lock") != text {
			t.Errorf("%v", held)
		}
	})
}
