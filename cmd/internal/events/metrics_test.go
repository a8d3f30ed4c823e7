package events

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
)

// job is a job's metrics in a file.
func job(t *testing.T, file string, l MetricsOptions) *Metrics {
	t.Helper()
	l.File, l.Locks, l.TTL = file, 1, time.Minute
	m, err := NewMetrics(l, t.Errorf)
	assert.OK(t, err)
	return m
}

// works lets a job acquire its lock, work until a time, and release the lock.
func (m *Metrics) works(success bool, until time.Time) {
	m.Handle(of(replock.EventAcquired, "", "", "id"))
	e := of(WorkEnded, "", "", "id")
	e.Time, e.Success, e.ExitCode = until, success, new(int)
	m.Handle(e)
	m.Handle(of(replock.EventReleased, "", "", "id"))
}

// lines returns the lines of a file that contain a text.
func lines(t *testing.T, file, contain string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	assert.OK(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, contain) {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}

// TestOneFileForSeveralJobs: a file has the series of all its jobs, and each metric's help and
// type once, before them.
func TestOneFileForSeveralJobs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.prom")
	var want []string
	for _, repository := range []string{`/a"\` + "\n}", "/b"} {
		for _, operation := range []string{"backup", "prune"} {
			for _, name := range []string{"", "home"} {
				l := MetricsOptions{Repository: repository, Lock: "repository", Mode: replock.Shared, Operation: operation, Job: name, OncePer: time.Hour}
				job(t, file, l).works(true, time.Unix(1e9, 0))
				want = append(want, "repolock_held"+l.labels()+" 0")
			}
		}
	}
	slices.Sort(want)
	assert.Equal(t, lines(t, file, "repolock_held{"), want)
	for _, f := range families {
		n := len(lines(t, file, "# HELP "+f.name+" ")) + len(lines(t, file, "# TYPE "+f.name+" "))
		assert.That(t, n == 2 || f.name == "repolock_wait_seconds", "%s has %d comments", f.name, n)
	}
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode() != 0o644 { // the collector is another user
		t.Errorf("%v, %v", info.Mode(), err)
	}
	// A job that has run again has one series still.
	job(t, file, MetricsOptions{Repository: "/b", Lock: "repository", Mode: replock.Shared, Operation: "prune"})
	assert.Equal(t, lines(t, file, "repolock_held{"), want)
}

// TestLastSuccess: each job keeps the time of its last success until its next one.
func TestLastSuccess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.prom")
	prune := MetricsOptions{Lock: "repository", Mode: replock.Exclusive, Operation: "prune"}
	backup := MetricsOptions{Lock: "repository", Mode: replock.Shared, Operation: "backup"}
	last := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		assert.Equal(t, lines(t, file, lastSuccess+"{"), want)
	}
	job(t, file, prune).works(false, time.Unix(1000, 0))
	last()
	job(t, file, prune).works(true, time.Unix(2000, 5e8))
	pruned := lastSuccess + prune.labels() + " 2000.5"
	last(pruned)
	job(t, file, prune).works(false, time.Unix(3000, 0))
	last(pruned)
	job(t, file, backup).works(true, time.Unix(4000, 0))
	last(pruned, lastSuccess+backup.labels()+" 4000")
	early, late := job(t, file, prune), job(t, file, prune)
	late.works(true, time.Unix(6000, 0))
	early.works(true, time.Unix(5000, 0))
	last(lastSuccess+prune.labels()+" 6000", lastSuccess+backup.labels()+" 4000")
}

// TestManyJobs: the jobs that changed last are kept.
func TestManyJobs(t *testing.T) {
	x := exposition{}
	for i := range 3 * maxJobs {
		l := MetricsOptions{Operation: fmt.Sprint(i)}
		x.put(l.labels(), map[string]float64{lastChange: float64(i)})
	}
	x = parseExposition(x.expose())
	_, newest := x[MetricsOptions{Operation: fmt.Sprint(3*maxJobs - 1)}.labels()]
	_, oldest := x[MetricsOptions{Operation: "0"}.labels()]
	assert.That(t, len(x) == maxJobs && newest && !oldest, "%d jobs are kept, the newest %t, the oldest %t", len(x), newest, oldest)
}

// TestForeignLines: the file loses lines that would break a collector, and series without all labels.
func TestForeignLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.prom")
	l := MetricsOptions{Repository: "/r", Lock: "l", Mode: replock.Shared, Operation: "o"}
	good := "repolock_held" + l.labels() + " 1"
	other := "repolock_held" + MetricsOptions{Repository: "/q", Lock: "l", Mode: replock.Shared, Operation: "o"}.labels()
	for _, bad := range []string{
		`repolock_held{lock="l",mode="shared",operation="o"} 1`,
		other, other + " ", other + " 1 2", other + " 1.2.3", other + " x", "x" + other + " 1",
		strings.Replace(other, "held", "other", 1) + " 1", strings.Replace(other, "/q", "/\xff", 1) + " 1",
		strings.Replace(other, "/q", `/\q`, 1) + " 1", strings.Replace(other, "/q", `/"`, 1) + " 1", "\x00\x00", "node_load1 3",
	} {
		assert.OK(t, os.WriteFile(file, []byte(bad+"\n"), 0o600))
		job(t, file, l).Handle(of(replock.EventAcquired, "", "", "id"))
		got := lines(t, file, "repolock_held{")
		assert.That(t, slices.Equal(got, []string{good}) && len(lines(t, file, "node")) == 0, "with %q: %q", bad, got)
	}
	assert.OK(t, os.WriteFile(file, []byte(other+" 1\n"+strings.Repeat("#", maxMetrics)), 0o600))
	job(t, file, l)
	got := lines(t, file, "")
	assert.That(t, len(got) <= 100, "%d lines", len(got))
}

// TestWritersAtOnce: no writer's series are lost.
func TestWritersAtOnce(t *testing.T) {
	if !flock.Supported {
		t.Log("writers aren't kept apart here")
		return
	}
	file := filepath.Join(t.TempDir(), "m.prom")
	var all sync.WaitGroup
	const jobs, changes = 8, 20
	for i := range jobs {
		all.Go(func() {
			m := metricsFile{file, 10 * time.Minute} // only a hang takes so long
			for n := range changes {
				assert.Is(t, m.put(MetricsOptions{Operation: fmt.Sprint(i)}.labels(), map[string]float64{"repolock_held": float64(n + 1)}), nil)
			}
		})
	}
	all.Wait()
	got := lines(t, file, "repolock_held{")
	full := slices.DeleteFunc(slices.Clone(got), func(l string) bool { return !strings.HasSuffix(l, fmt.Sprintf(" %d", changes)) })
	assert.That(t, len(full) == jobs, "%q", got)
}

// TestWriterThatIsStopped: a stopped writer that holds the flock delays a job once, and doesn't stop it.
func TestWriterThatIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		defer (&metricsFile{}).alone(dir)()
		begin := time.Now()
		job(t, filepath.Join(dir, "m.prom"), MetricsOptions{}).works(true, time.Unix(1, 0))
		got := lines(t, filepath.Join(dir, "m.prom"), lastSuccess+"{")
		assert.That(t, len(got) == 1, "%q", got)
		took := time.Since(begin)
		assert.That(t, !flock.Supported || took == patience, "it took %v", took)
	})
}

// TestMetricsOfSeveral: several locks count as held only while all are held. Each loss of one counts.
func TestMetricsOfSeveral(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.prom")
	l := MetricsOptions{Repository: "/srv/repo", Lock: "n,k", Mode: replock.Exclusive, Operation: "run"}
	m := job(t, file, l)
	m.locks = 2
	a, b := "", "redis://host:6379/0?key=k"
	const again = 10 // a failed resume reports the loss again
	for i, step := range []struct {
		kind  replock.EventKind
		place string
		held  float64
	}{
		{replock.EventAcquired, a, 0},
		{replock.EventReleased, a, 0}, // the other was refused
		{replock.EventAcquired, b, 0},
		{replock.EventAcquired, a, 1},
		{replock.EventRefreshed, b, 1},
		{replock.EventLost, b, 0},
		{replock.EventRefreshed, a, 0},
		{replock.EventResumed, b, 1},
		{replock.EventLost, a, 0},
		{replock.EventLost, b, 0},
		{replock.EventLost, b, 0},
		{replock.EventResumed, a, 0}, // the other isn't yet
		{replock.EventResumed, b, 1},
		{replock.EventReleased, b, 0},
		{replock.EventResumed, b, 1},
		{replock.EventReleaseFailed, b, 0},
		{replock.EventReleased, a, 0},
	} {
		e := of(step.kind, step.place, "", "id")
		e.Ended = e.Ended && i != again
		m.Handle(e)
		assert.That(t, m.values["repolock_held"] == step.held, "step %d, %s of %q: held %v", i, step.kind, step.place, m.values["repolock_held"])
		_, ok := m.values["repolock_held_seconds"]
		assert.That(t, ok == (i >= 3), "step %d: held_seconds %t", i, ok)
		assert.That(t, i < 3 || (m.ended == 0) == (step.held == 1), "step %d: ended at %v", i, m.ended)
	}
	m.ended = m.acquired + 5*time.Second
	e := of(replock.EventReaped, a, "", "")
	e.Holders = make([]replock.Info, 2)
	m.Handle(e)
	assert.That(t, m.values["repolock_held_seconds"] == 5 && m.values["repolock_reaped_total"] == 2, "after it has ended: %v", m.values)
	m.Handle(of(replock.EventReleased, b, "", "id"))
	assert.That(t, m.values["repolock_held_seconds"] == 5, "the second of two ends counts: %v", m.values)
	got := lines(t, file, l.labels()+" ")
	assert.That(t, slices.Contains(got, "repolock_held"+l.labels()+" 0") && slices.Contains(got, "repolock_lost_total"+l.labels()+" 3"), "%q", got)
}

// TestMetricsThroughLink: repolock writes the target of a link, and the link stays.
func TestMetricsThroughLink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "collected", "repolock.prom"), filepath.Join(dir, "link.prom")
	assert.OK(t, fault.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("old"), 0o600)))
	if err := os.Symlink("collected/repolock.prom", link); err != nil {
		t.Log("there are no links here:", err)
		return
	}
	job(t, link, MetricsOptions{})
	to, err := os.Readlink(link)
	assert.That(t, err == nil, "the link was replaced: %q %v", to, err)
	assert.That(t, len(lines(t, file, "repolock_held{")) == 1, "%q", lines(t, file, ""))
}
