package events

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/regular"
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
	acquired time.Duration   // when the last of the locks was acquired, or 0
	ended    time.Duration   // when the first of the locks was released or lost, or 0
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
	OncePer                          time.Duration // the period of the job, or 0
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
	if o.OncePer > 0 {
		m.values["repolock_once_per_seconds"] = Seconds(o.OncePer)
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
		if !e.Ended { // a failed resume reports the loss again
			n = 0
		}
	case replock.EventResumed:
		if m.all(e) {
			m.values["repolock_held"], m.ended = 1, 0
		}
	case replock.EventReleased:
	case WorkEnded:
		if e.ExitCode != nil {
			m.values["repolock_exit_code"] = float64(*e.ExitCode)
		}
		if e.Success && !e.Skipped {
			m.values[lastSuccess] = timestamp(e.Time)
		}
	default:
		if counter == "" {
			return false
		}
	}
	if e.Ended {
		m.end(e, now)
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

// all notes that the lock of an event is held. It reports whether all locks are held now.
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

// metricsFile is a file of metrics. Several jobs can share it.
type metricsFile struct {
	path     string
	patience time.Duration // bounds the wait for another writer
}

// patience is how long we wait for another writer. It is short: a person can have stopped that process, and it must
// not hang us.
const patience = 250 * time.Millisecond

// put replaces the series of these labels in the file, and keeps the series of other jobs. It replaces
// the whole file at once, because a collector can read it at any time.
func (m *metricsFile) put(labels string, values map[string]float64) error {
	file, err := regular.Target(m.path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(file)
	defer m.alone(dir)()
	old, err := readMetrics(file)
	if err != nil {
		return err
	}
	all := parseExposition(old)
	all.put(labels, values)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // does nothing after the rename
	_, err = tmp.Write(all.expose())
	// The collector runs as another user.
	if err := fault.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// maxMetrics bounds the file that we read, in bytes. A file of maxJobs is smaller.
const maxMetrics = 4 << 20

// readMetrics returns the file's text. It returns nothing if there is no file, if the file belongs to another user
// and can't be read, or if it is too long to be ours.
func readMetrics(file string) ([]byte, error) {
	f, err := regular.Open(file)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxMetrics+1))
	if len(text) > maxMetrics {
		return nil, nil
	}
	return text, err
}

// alone locks the directory by a flock, so that no other process writes the file until the returned function is
// called. If the flock isn't free within m.patience, alone returns without it. Then the change of the other writer
// can get lost.
func (m *metricsFile) alone(dir string) func() {
	d, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if ok, err := flock.Try(d); ok || err != nil {
			break
		}
		if time.Since(begin) >= m.patience {
			m.patience = 0 // or each event waits for a stopped writer
			break
		}
	}
	return func() { flock.Close(d) }
}

// family is a metric: its name, its type and its help.
type family struct{ name, kind, help string }

const (
	lastSuccess = "repolock_last_success_timestamp_seconds"
	lastChange  = "repolock_last_change_timestamp_seconds"
)

// families are the metrics, in the order of the file. Their help texts must never change: node_exporter
// rejects files that have different texts for one metric.
var families = []family{
	{"repolock_held", "gauge", "1 while the lock is held."},
	{"repolock_held_seconds", "gauge", "How long the lock has been held, until now or until it was released or lost."},
	{"repolock_waiting", "gauge", "1 while the lock has been asked for, and was neither acquired nor refused."},
	{"repolock_wait_seconds", "gauge", "How long it took until the lock was held or refused."},
	{"repolock_asked_timestamp_seconds", "gauge", "When the lock was asked for."},
	{"repolock_ttl_seconds", "gauge", "The ttl of the lock. A lock that is held is refreshed twice in this time."},
	{"repolock_once_per_seconds", "gauge", "The period in which the job runs once, on one of the machines that start it."},
	{"repolock_blocked_total", "counter", "How often the lock was refused because it was held."},
	{"repolock_refreshes_total", "counter", "How often the lock was refreshed."},
	{"repolock_refresh_failures_total", "counter", "How often a refresh failed."},
	{"repolock_lost_total", "counter", "How often the lock was lost."},
	{"repolock_resumed_total", "counter", "How often a lost lock was resumed."},
	{"repolock_reaped_total", "counter", "How many stale locks were removed."},
	{"repolock_release_failures_total", "counter", "How often an object of the lock was left to expire."},
	{"repolock_exit_code", "gauge", "The exit code of the command."},
	{lastSuccess, "gauge", "When the command last ended with success under its lock."},
	{lastChange, "gauge", "When these figures were written."},
}

// labels returns the labels in Prometheus' text format. They distinguish the series of different jobs.
func (o MetricsOptions) labels() string {
	job := ""
	if o.Job != "" {
		// Prometheus itself sets the label job.
		job = fmt.Sprintf(`job_name="%s",`, escapeLabel(o.Job))
	}
	return fmt.Sprintf(`{%slock="%s",mode="%s",operation="%s",repository="%s"}`,
		job, escapeLabel(o.Lock), o.Mode, escapeLabel(o.Operation), escapeLabel(o.Repository))
}

func escapeLabel(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "\ufffd"))
}

// sample matches a line of expose.
var sample = lazyregexp.New(strings.ReplaceAll(
	`^(repolock_[a-z_]+)({(?:job_name="VALUE",)?lock="VALUE",mode="VALUE",operation="VALUE",repository="VALUE"}) (-?[0-9.]+)$`,
	"VALUE", `(?:[^"\\]|\\[\\"n])*`))

// exposition has the values of a file's metrics, by labels and by name.
type exposition map[string]map[string]float64

// parseExposition parses the output of expose. It skips all other lines, such as the series of a
// version with other labels.
func parseExposition(text []byte) exposition {
	all := exposition{}
	for line := range strings.Lines(string(text)) {
		part := sample.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if part == nil || !utf8.ValidString(line) || !slices.ContainsFunc(families, func(f family) bool { return f.name == part[1] }) {
			continue
		}
		value, err := strconv.ParseFloat(part[3], 64)
		if err != nil {
			continue
		}
		if all[part[2]] == nil {
			all[part[2]] = map[string]float64{}
		}
		all[part[2]][part[1]] = value
	}
	return all
}

// maxJobs bounds the file of a user who gives each job a new name.
const maxJobs = 100

// put replaces the series of these labels, except for the last success. If there are too many jobs, it removes the
// jobs whose last change is the oldest.
func (x exposition) put(labels string, values map[string]float64) {
	values = maps.Clone(values)
	if last := math.Max(values[lastSuccess], x[labels][lastSuccess]); last > 0 {
		values[lastSuccess] = last
	}
	delete(x, labels)
	others := slices.SortedFunc(maps.Keys(x), func(a, b string) int {
		return cmp.Or(cmp.Compare(x[b][lastChange], x[a][lastChange]), cmp.Compare(a, b))
	})
	for _, l := range others[min(len(others), maxJobs-1):] {
		delete(x, l)
	}
	x[labels] = values
}

// expose returns the file's text: each metric once, with the series of all jobs.
func (x exposition) expose() []byte {
	var b bytes.Buffer
	jobs := slices.Sorted(maps.Keys(x))
	for _, f := range families {
		header := fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		for _, labels := range jobs {
			if v, ok := x[labels][f.name]; ok {
				fmt.Fprintf(&b, "%s%s%s %s\n", header, f.name, labels, strconv.FormatFloat(v, 'f', -1, 64))
				header = ""
			}
		}
	}
	return b.Bytes()
}
