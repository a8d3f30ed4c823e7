//go:build unix

package towerfleet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/locking"
)

// world is a lock directory and the events of its backends.
type world struct {
	*testing.T
	dir    string
	clock  *leapclock.Clock
	events []any
}

// in runs a test in a bubble, with a directory and the bubble's clock.
func in(t *testing.T, f func(w *world)) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "locks")
	synctest.Test(t, func(t *testing.T) { f(&world{T: t, dir: dir, clock: leapclock.New()}) })
}

func (w *world) backend(opts Options) *Backend {
	w.Helper()
	if opts.Clock == nil {
		opts.Clock = w.clock
	}
	if opts.Audit == nil {
		opts.Audit = func(e any) { w.events = append(w.events, e) }
	}
	b, err := Open(w.dir, opts)
	assert.OK(w, err)
	return b
}

// refused requires that a lock is held, and returns its holder.
func (w *world) refused(b *Backend, name string) *locking.Info {
	w.Helper()
	lockcheck.Held(w, b, name)
	return lockcheck.Seen(w, b, name)
}

func (w *world) files() (names []string) {
	w.Helper()
	entries, err := os.ReadDir(w.dir)
	assert.OK(w, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// left requires that the directory has these files, and that there were so many events.
func (w *world) left(events int, names ...string) {
	w.Helper()
	if files := w.files(); !slices.Equal(files, names) || len(w.events) != events {
		w.Errorf("left %q, want %q; %d events, want %d: %v", files, names, len(w.events), events, w.events)
	}
}

// stolen requires that the first event is lock_stolen, of this request.
func (w *world) stolen(request, reason string) {
	w.Helper()
	e, ok := w.events[0].(audit.Record)
	if !ok || e.Event != audit.Stolen || e.Reason != reason || !strings.HasPrefix(string(e.PreviousLock), `{"request_id":"`+request+`",`) {
		w.Errorf("%+v", w.events[0])
	}
}

func (w *world) path(file string) string { return filepath.Join(w.dir, file) }

func (w *world) read(file string) string {
	w.Helper()
	b, err := os.ReadFile(w.path(file))
	assert.OK(w, err)
	return string(b)
}

func (w *world) write(file, text string) {
	w.Helper()
	assert.OK(w, os.WriteFile(w.path(file), []byte(text), 0o600))
}

// foreign is the lock file of another program, with a field that the specification doesn't have.
func foreign(name, request string, beat time.Time, ttl int) string {
	at := formatTime(beat)
	return fmt.Sprintf(`{"lock_version": "v1", "lock_name": %q, "request_id": %q, "actor": "claude-code",
  "intent": "deploy-app","intent_version":"1.2.0", "host_id": "tower-01", "pid": 12345, "created_at": %q,
  "last_heartbeat_at" : %q , "ttl_seconds": %d, "metadata": {"big": 12345678901234567890.10}, "x-new": [1,  {"last_heartbeat_at": "mine"}]}
`, name, request, at, at, ttl)
}

// document is the specification.
func document(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("testdata/tower-fleet-lock-v1.txt")
	assert.OK(t, err)
	return string(b)
}

// example returns the JSON of the specification that begins with a line, at the nth place.
func example(t testing.TB, line string, nth int) string {
	t.Helper()
	parts := strings.Split(document(t), "{\n  "+line)
	assert.Need(t, len(parts) > nth, "the document has %q %d times", line, len(parts)-1)
	text, _, _ := strings.Cut("{\n  "+line+parts[nth], "\n}\n")
	return text + "\n}"
}

// hook replaces a function for the rest of the test.
func hook[F any](t testing.TB, at *F, f F) {
	old := *at
	t.Cleanup(func() { *at = old })
	*at = f
}
