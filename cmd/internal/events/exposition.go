package events

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/replock"
)

// family is a metric: its name, its type and its help.
type family struct{ name, kind, help string }

// Names of metrics that outlive a run, or that decide which series stay.
const (
	lastSuccess = "repolock_last_success_timestamp_seconds"
	lastChange  = "repolock_last_change_timestamp_seconds"
)

// families are the metrics, in the order of the file. node_exporter complains about files with
// different help texts for one metric, so a text that is in use must not change.
var families = []family{
	{"repolock_held", "gauge", "1 while the lock is held."},
	{"repolock_held_seconds", "gauge", "How long the lock has been held, until now or until it was released or lost."},
	{"repolock_waiting", "gauge", "1 while the lock has been asked for, and was neither acquired nor refused."},
	{"repolock_wait_seconds", "gauge", "How long it took until the lock was held or refused."},
	{"repolock_asked_timestamp_seconds", "gauge", "When the lock was asked for."},
	{"repolock_ttl_seconds", "gauge", "The ttl of the lock. A lock that is held is refreshed twice in this time."},
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

// Labels tell the series of one job from those of others. Job can be empty.
type Labels struct {
	Repository string // without credentials
	Lock       string // as LockName has it
	Mode       replock.Mode
	Operation  string
	Job        string
}

// String returns the labels in Prometheus' text format.
func (l Labels) String() string {
	job := ""
	if l.Job != "" {
		// Not job: Prometheus gives that label to the target.
		job = fmt.Sprintf(`job_name="%s",`, escapeLabel(l.Job))
	}
	return fmt.Sprintf(`{%slock="%s",mode="%s",operation="%s",repository="%s"}`,
		job, escapeLabel(l.Lock), l.Mode, escapeLabel(l.Operation), escapeLabel(l.Repository))
}

// escapeLabel escapes the value of a label.
func escapeLabel(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "\ufffd"))
}

// sample matches a line that expose writes.
var sample = lazyregexp.New(strings.ReplaceAll(
	`^(repolock_[a-z_]+)({(?:job_name="VALUE",)?lock="VALUE",mode="VALUE",operation="VALUE",repository="VALUE"}) (-?[0-9.]+)$`,
	"VALUE", `(?:[^"\\]|\\[\\"n])*`))

// exposition is the content of a file: the values of metrics, by labels and by name.
type exposition map[string]map[string]float64

// parseExposition returns what expose wrote. It leaves out all else, such as the series of a
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

// maxJobs bounds a file of jobs that have a new name each time.
const maxJobs = 100

// put replaces the series of these labels. It keeps the last success, and removes the jobs that
// changed the longest time ago if there are too many.
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

// expose returns the text format: each metric once, with the series of all jobs.
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
