package events

import (
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// Metrics writes the state of a lock into a file in Prometheus' text format, for the
// textfile collector of node_exporter.
type Metrics struct {
	file   metricsFile
	labels string
	say    func(format string, args ...any)

	locks    int             // the number of locks, which together count as one
	held     map[string]bool // by Event.Place
	asked    time.Duration   // the beginning of the acquire, on the clock since boot
	acquired time.Duration   // 0 before
	ended    time.Duration   // 0 before
	values   map[string]float64
}

// MetricsOptions describe the locks of a Metrics.
type MetricsOptions struct {
	File string
	// Repository has no credentials, and Lock is from LockName. Job can be empty.
	Repository, Lock, Operation, Job string
	Mode                             replock.Mode
	Locks                            int // the number of locks that are held together
	TTL                              time.Duration
}

// NewMetrics writes the file for locks that aren't held yet. say gets a warning if the file can't be written later.
func NewMetrics(o MetricsOptions, say func(format string, args ...any)) (*Metrics, error) {
	m := &Metrics{
		file: metricsFile{o.File, patience}, labels: o.labels(), say: say,
		locks: o.Locks, held: map[string]bool{}, asked: clock.System{}.Elapsed(),
		values: map[string]float64{
			"repolock_held": 0, "repolock_waiting": 1, "repolock_ttl_seconds": Seconds(o.TTL),
			"repolock_asked_timestamp_seconds": timestamp(clock.System{}.Now()),
		},
	}
	for _, f := range families {
		if f.kind == "counter" {
			m.values[f.name] = 0
		}
	}
	return m, m.write()
}

// Handle rewrites the file if the event changes it.
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
	n, counter := 1, kinds[e.Kind].counter
	switch e.Kind {
	case replock.EventAcquired:
		if m.all(e) {
			m.acquired, m.ended = now, 0
			m.values["repolock_held"], m.values["repolock_waiting"], m.values["repolock_wait_seconds"] = 1, 0, Seconds(now-m.asked)
		}
	case replock.EventBlocked:
		m.values["repolock_waiting"], m.values["repolock_wait_seconds"] = 0, Seconds(now-m.asked)
	case NotAcquired:
		m.values["repolock_waiting"] = 0
	case replock.EventReaped:
		n = len(e.Holders)
	case replock.EventLost:
		if !m.held[e.Place] { // a failed resume reports the loss again
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
		if e.Success {
			m.values[lastSuccess] = timestamp(e.Time)
		}
	default:
		if counter == "" {
			return false
		}
	}
	if counter != "" {
		m.values[counter] += float64(n)
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

func (m *Metrics) write() error {
	m.values[lastChange] = timestamp(clock.System{}.Now())
	return m.file.put(m.labels, m.values)
}

func timestamp(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
