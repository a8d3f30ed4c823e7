//go:build unix

package towerfleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stage is a directory whose backends live on the day of the document's examples.
type stage struct {
	*world
	now time.Time
}

const (
	theLock = "money-tracker-production"
	theDir  = "/root/tower-fleet/logs/locks" // of the examples
)

func (s *stage) Now() time.Time                       { return s.now }
func (s *stage) Elapsed() time.Duration               { return time.Duration(s.now.UnixNano()) }
func (s *stage) After(time.Duration) <-chan time.Time { panic("nothing waits") }

// at sets the clock.
func (s *stage) at(clock string) {
	s.Helper()
	var err error
	if s.now, err = time.Parse(time.RFC3339, "2025-12-18T"+clock+"Z"); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) backend(request string, force bool) *Backend {
	s.Helper()
	s.events = nil
	return s.world.backend(Options{RequestID: request, Actor: "claude-code", Intent: "deploy-app", IntentVersion: "1.2.0",
		HostID: "tower-01", Settle: -1, Clock: s, Force: force})
}

// lock writes the lock of the examples with other values.
func (s *stage) lock(request, created, beat string) {
	s.Helper()
	text := example(s, `"lock_version"`, 1)
	for old, now := range map[string]string{"req_abc123def456": request,
		"18T10:30:10Z": "18T" + created + "Z", "18T10:30:40Z": "18T" + beat + "Z"} {
		if !strings.Contains(text, old) {
			s.Fatalf("the example has no %s", old)
		}
		text = strings.Replace(text, old, now, 1)
	}
	s.write(theLock+".lock", text)
}

// same requires that a value marshals to the document's own JSON, but for the directory and for
// what old and now are.
func (s *stage) same(v any, line string, nth int, old, now string) {
	s.Helper()
	compact, err := json.Marshal(v)
	if err != nil {
		s.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, compact, "", "  "); err != nil {
		s.Fatal(err)
	}
	ours := strings.ReplaceAll(got.String(), s.dir, theDir)
	want := strings.Replace(example(s, line, nth), old, now, 1)
	if ours != want {
		s.Errorf("ours\n%s\nthe document's\n%s", ours, want)
	}
}

// TestDocumentsJSON: driven with the values of the document's examples, the backend emits and
// returns their very text.
func TestDocumentsJSON(t *testing.T) {
	in(t, func(w *world) {
		s := &stage{world: w}

		s.at("10:30:10")
		b := s.backend("req_abc123", false)
		h := w.acquire(b, theLock, 0)
		s.same(w.events[0], `"event": "lock_acquired"`, 1, "", "")
		if err := b.Release(w.Context(), h); err != nil {
			t.Fatal(err)
		}

		s.lock("req_xyz789", "10:25:00", "10:29:45")
		s.same(w.refused(b, theLock), `"error": "lock_blocked"`, 1, "", "")

		s.at("10:30:00")
		s.lock("req_old123", "10:00:00", "10:00:00")
		s.same(w.refused(b, theLock), `"error": "lock_stale"`, 1, "", "")

		s.at("10:45:00")
		s.lock("req_old123", "10:00:00", "10:15:00")
		thief := s.backend("req_new456", true)
		h = w.acquire(thief, theLock, 0)
		s.same(w.events[0], `"event": "lock_stolen"`, 1, "sha256:abc123...", w.events[0].(Stolen).PreviousLockHash)
		if err := thief.Release(w.Context(), h); err != nil {
			t.Fatal(err)
		}

		for i, c := range []struct {
			acquired string
			result   Result
		}{{"10:30:00", Success}, {"10:35:00", Failure("deploy_manifests")}} {
			s.at(c.acquired)
			b := s.backend("req_abc123", false)
			h := w.acquire(b, theLock, time.Hour)
			s.at("10:45:00")
			if err := b.ReleaseAfter(w.Context(), h, c.result); err != nil {
				t.Fatal(err)
			}
			s.same(w.events[1], `"event": "lock_released"`, i+1, "", "")
		}

		b = s.backend("req_abc123", false)
		h = w.acquire(b, theLock, 0)
		hook(t, &remove, func(path string) error { return &os.PathError{Op: "unlink", Path: path, Err: syscall.EACCES} })
		if err := b.Release(w.Context(), h); err == nil {
			t.Error("it was released")
		}
		s.same(w.events[1], `"event": "lock_release_failed"`, 1, "", "")
	})
}

// TestHeartbeatFailedJSON: the document names heartbeat_failed and doesn't show it. It has the
// fields that lock_release_failed begins with, and the number of failures.
func TestHeartbeatFailedJSON(t *testing.T) {
	in(t, func(w *world) {
		s := &stage{world: w}
		s.at("10:30:10")
		b := s.backend("req_abc123", false)
		h := w.acquire(b, theLock, 0)
		hook(t, &exchange, func(string, string) error { return syscall.ENOSPC })
		for range heartbeatFailures {
			_ = b.Renew(w.Context(), h)
		}
		got, err := json.Marshal(w.events[1])
		want := `{"event":"heartbeat_failed","request_id":"req_abc123","timestamp":"2025-12-18T10:30:10Z",` +
			`"lock_name":"` + theLock + `","lock_path":"` + theDir + "/" + theLock + `.lock",` +
			`"consecutive_failures":3,"error":"ENOSPC: no space left on device"}`
		if ours := strings.ReplaceAll(string(got), w.dir, theDir); err != nil || ours != want {
			t.Errorf("%s\nwant\n%s", ours, want)
		}
	})
}

// TestDocument: the copy of the specification is as its authors published it.
func TestDocument(t *testing.T) {
	got := fmt.Sprintf("%x", sha256.Sum256([]byte(document(t))))
	if want := "54759cc519811e235b8393aabf7dc30df46bd6c1a49f96718ecc087062fa35ee"; got != want {
		t.Errorf("the document has SHA-256 %s, want %s", got, want)
	}
}
