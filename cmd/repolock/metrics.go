package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/replock"
)

// metrics writes what became of a lock into a file in Prometheus' text format, for the
// textfile collector of node_exporter. One that has no file does nothing. What can't be
// written is said, and holds nobody up.
type metrics struct {
	r      *reporter
	file   string
	labels string

	mu       sync.Mutex
	asked    time.Duration // on the clock since boot
	acquired time.Duration // 0: not yet
	ended    time.Duration // 0: not yet
	values   map[string]float64
}

// families are what is measured, in the order in which it is written.
var families = []struct{ name, kind, help string }{
	{"repolock_held", "gauge", "1 while the lock is held."},
	{"repolock_held_seconds", "gauge", "How long the lock has been held, until now or until it was released or lost."},
	{"repolock_wait_seconds", "gauge", "How long it took until the lock was held or refused."},
	{"repolock_blocked_total", "counter", "How often the lock was refused because somebody else held it."},
	{"repolock_refreshes_total", "counter", "How often the lock was refreshed."},
	{"repolock_refresh_failures_total", "counter", "How often it could not be."},
	{"repolock_lost_total", "counter", "How often the lock was lost."},
	{"repolock_resumed_total", "counter", "How often a lost lock was resumed."},
	{"repolock_reaped_total", "counter", "How many stale locks were removed."},
	{"repolock_release_failures_total", "counter", "How often an object of the lock was left to expire."},
	{"repolock_exit_code", "gauge", "What the command exited with."},
	{"repolock_last_change_timestamp_seconds", "gauge", "When the above was so."},
}

// newMetrics begins the file of --metrics-file.
func newMetrics(r *reporter, g global, mode replock.Mode, operation, file string) (*metrics, error) {
	m := &metrics{r: r, file: file, asked: clock.System{}.Elapsed(), values: map[string]float64{}}
	if file == "" {
		return m, nil
	}
	m.labels = fmt.Sprintf(`{lock="%s",mode="%s",operation="%s"}`, label(lockName(g.Name)), mode, label(operation))
	for _, f := range families {
		if f.kind == "counter" {
			m.values[f.name] = 0
		}
	}
	m.values["repolock_held"] = 0
	if err := m.write(m.render()); err != nil {
		return nil, usageError{fmt.Errorf("--metrics-file: %w", err)}
	}
	return m, nil
}

// event is told of each event of the lock.
func (m *metrics) event(e replock.Event) {
	if m.file == "" || !m.take(e) {
		return
	}
	m.mu.Lock()
	text := m.render()
	m.mu.Unlock()
	if err := m.write(text); err != nil { // which may take long: nobody waits for it
		m.r.say("warning: the metrics can't be written: %s", oneLine(err))
	}
}

// take counts an event, if it is one of those that count.
func (m *metrics) take(e replock.Event) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := clock.System{}.Elapsed()
	switch e.Kind {
	case replock.EventAcquired:
		m.acquired = now
		m.values["repolock_held"], m.values["repolock_wait_seconds"] = 1, seconds(now-m.asked)
	case replock.EventBlocked:
		m.values["repolock_blocked_total"]++
		m.values["repolock_wait_seconds"] = seconds(now - m.asked)
	case replock.EventRefreshed:
		m.values["repolock_refreshes_total"]++
	case replock.EventRefreshFailed:
		m.values["repolock_refresh_failures_total"]++
	case replock.EventLost:
		if m.ended == 0 { // or it is told once more that it can't be resumed
			m.values["repolock_lost_total"]++
			m.ended = now
		}
		m.values["repolock_held"] = 0
	case replock.EventResumed:
		m.values["repolock_resumed_total"]++
		m.values["repolock_held"] = 1
		m.ended = 0
	case replock.EventReaped:
		m.values["repolock_reaped_total"] += float64(len(e.Holders))
	case replock.EventReleaseFailed:
		m.values["repolock_release_failures_total"]++
	case replock.EventReleased:
		m.values["repolock_held"] = 0
		if m.ended == 0 {
			m.ended = now
		}
	default:
		return false
	}
	if m.acquired > 0 {
		until := now
		if m.ended > 0 {
			until = m.ended
		}
		m.values["repolock_held_seconds"] = seconds(until - m.acquired)
	}
	return true
}

// exited tells it the command's exit code, which is written when the lock is released.
func (m *metrics) exited(code int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values["repolock_exit_code"] = float64(code)
}

// render is the file's text. m.mu is held.
func (m *metrics) render() []byte {
	m.values["repolock_last_change_timestamp_seconds"] = float64(clock.System{}.Now().UnixMilli()) / 1000
	var b bytes.Buffer
	for _, f := range families {
		if v, ok := m.values[f.name]; ok {
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s%s %s\n", f.name, f.help, f.name, f.kind,
				f.name, m.labels, strconv.FormatFloat(v, 'f', -1, 64))
		}
	}
	return b.Bytes()
}

// write replaces the file as a whole: who collects it may come at any time.
func (m *metrics) write(text []byte) error {
	file, err := regular.Target(m.file)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // unless it was renamed
	_, err = tmp.Write(text)
	if err == nil {
		err = tmp.Chmod(0o644) // the collector is another user
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// label is a text as the value of a label.
func label(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "\ufffd"))
}
