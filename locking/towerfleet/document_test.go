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

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
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

func (s *stage) Now() time.Time { return s.now }

func (s *stage) Elapsed() time.Duration { return time.Duration(s.now.UnixNano()) }

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
		HostID: "tower-01", Metadata: map[string]any{"job": 7}, Settle: -1, Clock: s, Force: force})
}

// lock writes the lock of the examples with other values.
func (s *stage) lock(request, created, beat string) {
	s.Helper()
	text := example(s, `"lock_version"`, 1)
	for old, now := range map[string]string{"req_abc123def456": request,
		"18T10:30:10Z": "18T" + created + "Z", "18T10:30:40Z": "18T" + beat + "Z"} {
		assert.Need(s, strings.Contains(text, old), "the example has no %s", old)
		text = strings.Replace(text, old, now, 1)
	}
	s.write(theLock+".lock", text)
}

// same requires that a value marshals to the document's own JSON, but for the directory and for
// what old and now are.
func (s *stage) same(v any, line string, nth int, old, now string) {
	s.Helper()
	compact, err := json.Marshal(v)
	assert.OK(s, err)
	var got bytes.Buffer
	assert.OK(s, json.Indent(&got, compact, "", "  "))
	ours := strings.ReplaceAll(got.String(), s.dir, theDir)
	want := strings.Replace(example(s, line, nth), old, now, 1)
	assert.That(s, ours == want, "ours\n%s\nthe document's\n%s", ours, want)
}

// TestDocumentsJSON: driven with the values of the document's examples, the backend emits and
// returns their very text, and writes the very lock file.
func TestDocumentsJSON(t *testing.T) {
	in(t, func(w *world) {
		s := &stage{world: w}

		s.at("10:30:10")
		b := s.backend("req_abc123", false)
		h := lockcheck.Acquire(w, b, theLock, 0)
		s.same(w.events[0], `"event": "lock_acquired"`, 1, "", "")
		s.at("10:30:40")
		lockcheck.Renew(w, b, h)
		want := strings.NewReplacer("req_abc123def456", "req_abc123", "12345", fmt.Sprint(os.Getpid()),
			`"metadata": {}`, `"metadata": {"job":7,"repolock_handle":"`+digest(h.Token())+`"}`).Replace(example(t, `"lock_version"`, 1))
		if got := strings.Join(strings.Fields(w.read(theLock+".lock")), ""); got != strings.Join(strings.Fields(want), "") {
			t.Errorf("%s\nwant\n%s", got, want)
		}
		assert.That(t, !strings.Contains(w.read(theLock+".lock"), h.Token()), "a reader of the lock file can make its handle")
		lockcheck.Release(w, b, h)

		s.at("10:45:00")
		s.lock("req_old123", "10:00:00", "10:15:00")
		old := w.read(theLock + ".lock")
		thief := s.backend("req_new456", true)
		h = lockcheck.Acquire(w, thief, theLock, 0)
		s.same(w.events[0], `"event": "lock_stolen"`, 1, "sha256:abc123...", sum(old))
		assert.That(t, len(w.events) == 2 && w.events[1].(audit.Record).RequestID == "req_new456", "%v", w.events)
		lockcheck.Release(w, thief, h)

		for i, c := range []struct {
			acquired string
			result   Result
		}{{"10:30:00", Result{}}, {"10:35:00", Result{Failed: true, Step: "deploy_manifests"}}} {
			s.at(c.acquired)
			b := s.backend("req_abc123", false)
			h := lockcheck.Acquire(w, b, theLock, time.Hour)
			s.at("10:45:00")
			assert.OK(t, b.ReleaseAfter(w.Context(), h, c.result))
			s.same(w.events[1], `"event": "lock_released"`, i+1, "", "")
		}

		b = s.backend("req_abc123", false)
		h = lockcheck.Acquire(w, b, theLock, 0)
		hook(t, &remove, func(path string) error { return &os.PathError{Op: "unlink", Path: path, Err: syscall.EACCES} })
		if err := b.Release(w.Context(), h); err == nil {
			t.Error("it was released")
		}
		s.same(w.events[1], `"event": "lock_release_failed"`, 1, "", "")

		// The document names heartbeat_failed, and doesn't show it.
		hook(t, &exchange, func(string, string) error { return syscall.ENOSPC })
		for _, at := range []string{"10:44:00", "10:44:30", "10:45:00"} {
			s.at(at)
			_ = b.Renew(w.Context(), h)
		}
		got, err := json.Marshal(w.events[2])
		want = `{"event":"heartbeat_failed","request_id":"req_abc123","timestamp":"2025-12-18T10:45:00Z",` +
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
