package events

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// Metrics writes the state of a lock into a file in Prometheus' text format, for the
// textfile collector of node_exporter.
type Metrics struct {
	file   string
	labels string
	say    func(format string, args ...any)

	locks    int             // how many there are; together they count as one
	held     map[string]bool // by Event.Place
	asked    time.Duration   // on the clock since boot
	acquired time.Duration   // 0: not yet
	ended    time.Duration   // 0: not yet
	values   map[string]float64
}

// family is a metric: its name, its type and its help.
type family struct{ name, kind, help string }

// families are the metrics, in the order of the file.
var families = []family{
	{"repolock_held", "gauge", "1 while the lock is held."},
	{"repolock_held_seconds", "gauge", "How long the lock has been held, until now or until it was released or lost."},
	{"repolock_wait_seconds", "gauge", "How long it took until the lock was held or refused."},
	{"repolock_blocked_total", "counter", "How often the lock was refused because it was held."},
	{"repolock_refreshes_total", "counter", "How often the lock was refreshed."},
	{"repolock_refresh_failures_total", "counter", "How often a refresh failed."},
	{"repolock_lost_total", "counter", "How often the lock was lost."},
	{"repolock_resumed_total", "counter", "How often a lost lock was resumed."},
	{"repolock_reaped_total", "counter", "How many stale locks were removed."},
	{"repolock_release_failures_total", "counter", "How often an object of the lock was left to expire."},
	{"repolock_exit_code", "gauge", "The exit code of the command."},
	{"repolock_last_change_timestamp_seconds", "gauge", "When this file was written."},
}

// NewMetrics begins the file for a number of locks that are held together, named as LockName
// has it. A file that can't be written later is reported to say.
func NewMetrics(file, lock string, locks int, mode replock.Mode, operation string, say func(format string, args ...any)) (*Metrics, error) {
	m := &Metrics{file: file, say: say, locks: locks, held: map[string]bool{}, asked: clock.System{}.Elapsed(), values: map[string]float64{"repolock_held": 0}}
	m.labels = fmt.Sprintf(`{lock="%s",mode="%s",operation="%s"}`, label(lock), mode, label(operation))
	for _, f := range families {
		if f.kind == "counter" {
			m.values[f.name] = 0
		}
	}
	return m, m.write()
}

// Handle writes the file anew if the event changes it.
func (m *Metrics) Handle(e Event) {
	if !m.count(e) {
		return
	}
	if err := m.write(); err != nil {
		m.say("warning: the metrics can't be written: %s", text.Error(err))
	}
}

// count counts an event, and reports whether that changes the file.
func (m *Metrics) count(e Event) bool {
	now := clock.System{}.Elapsed()
	n := 1
	switch e.Kind {
	case replock.EventAcquired:
		if m.all(e) {
			m.acquired, m.ended = now, 0
			m.values["repolock_held"], m.values["repolock_wait_seconds"] = 1, Seconds(now-m.asked)
		}
	case replock.EventBlocked:
		m.values["repolock_wait_seconds"] = Seconds(now - m.asked)
	case replock.EventReaped:
		n = len(e.Holders)
	case replock.EventLost:
		if !m.held[e.Place] { // a resume that fails reports the loss again
			n = 0
		}
		m.end(e, now)
	case replock.EventResumed:
		if m.all(e) {
			m.values["repolock_held"], m.ended = 1, 0
		}
	case replock.EventReleased:
		m.end(e, now)
	case WorkEnded:
		if e.ExitCode != nil {
			m.values["repolock_exit_code"] = float64(*e.ExitCode)
		}
	}
	k := kinds[e.Kind]
	if k.counter != "" {
		m.values[k.counter] += float64(n)
	} else if !k.gauges {
		return false
	}
	if m.acquired > 0 {
		until := now
		if m.ended > 0 {
			until = m.ended
		}
		m.values["repolock_held_seconds"] = Seconds(until - m.acquired)
	}
	return true
}

// all notes that the lock of an event is held, and reports whether all locks are.
func (m *Metrics) all(e Event) bool {
	m.held[e.Place] = true
	return len(m.held) >= m.locks
}

func (m *Metrics) end(e Event, now time.Duration) {
	delete(m.held, e.Place)
	m.values["repolock_held"] = 0
	if m.ended == 0 {
		m.ended = now
	}
}

func (m *Metrics) render() []byte {
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

// write replaces the file as a whole, because a collector can read it at any time.
func (m *Metrics) write() error {
	file, err := regular.Target(m.file)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // unless it was renamed
	_, err = tmp.Write(m.render())
	// The collector is another user.
	if err := errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// label escapes the value of a label.
func label(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "\ufffd"))
}
