package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/judge"
)

// long is a lease that no fault has to wait for: what a test is about comes first, and ends the
// round.
const long = time.Minute

// newTrial returns a trial of three clients, a lock as a command line with PLACE in place of a
// directory, and that directory.
func newTrial(t *testing.T, lock string, lease time.Duration, faults ...Fault) (Trial, string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Trial{
		Exclusive: strings.ReplaceAll(lock, "PLACE", dir), Program: program, Clients: 3, Lease: lease, Faults: faults, Rounds: 1, Seed: 1,
		JudgeFor: hang,
	}, dir
}

// run runs a trial, and checks that it leaves nothing.
func (tr Trial) run(t *testing.T) TrialReport {
	t.Helper()
	if err := tr.Check(); err != nil {
		t.Fatal(err)
	}
	r, err := tr.Run(t.Context())
	if err != nil {
		t.Errorf("%v\n%s", err, strings.Join(r.Pictures, "\n"))
	}
	tr.nothingLeft(t)
	return r
}

func (tr Trial) nothingLeft(t *testing.T) {
	t.Helper()
	if pids := marked(os.TempDir()); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
	if files, err := os.ReadDir(os.TempDir()); err != nil || len(files) > 0 {
		t.Errorf("left: %v %v", files, err)
	}
}

// TestTrialHolds: flock holds under every fault: the child has its file, too, so that the lock
// is held as long as the child is there.
func TestTrialHolds(t *testing.T) {
	faults := slices.DeleteFunc(TrialFaults(), func(f Fault) bool { return f == Clock })
	tr, _ := newTrial(t, "flock PLACE/lock {}", time.Second, faults...)
	tr.Shared = strings.Replace(tr.Exclusive, "flock ", "flock -s ", 1)
	var log bytes.Buffer
	tr.Log = &log
	r := tr.run(t)
	if r.Verdict.Result != judge.NotFound || len(r.Verdict.Violations)+len(r.Pictures)+len(r.Left) > 0 {
		t.Errorf("%s %s %v\n%s", r.Verdict.Result, r.Verdict.Why, r.Verdict.Violations, strings.Join(r.Pictures, "\n"))
	}
	for i, f := range faults {
		got := r.Faults[i]
		if got.Fault != f || got.Rounds != 1 || got.Locks < 2 || got.TwoIn+got.Blocked > 0 {
			t.Errorf("%s: %+v", f, got)
		}
	}
	inflicted(t, &log, tr.Lease)
}

// inflicted checks from the events that each fault hit what it is about: after kill-all the
// child never leaves, after kill-wrapper it does, and a stopped one writes nothing for a lease.
func inflicted(t *testing.T, log *bytes.Buffer, lease time.Duration) {
	t.Helper()
	faults, left, last, gap := map[string]Fault{}, map[string]bool{}, map[string]time.Duration{}, map[string]time.Duration{}
	for d := json.NewDecoder(log); d.More(); {
		var e judge.Event
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case judge.Fault:
			if f, _, holder := strings.Cut(e.Text, " (the wrapper is "); holder {
				faults[e.ID] = Fault(f)
			}
		case judge.Out:
			left[e.ID] = true
		case judge.In:
			last[e.ID] = e.At
		case judge.Beat:
			gap[e.ID], last[e.ID] = max(gap[e.ID], e.At-last[e.ID]), e.At
		}
	}
	if len(faults) != 6 {
		t.Errorf("%v", faults)
	}
	for id, f := range faults {
		stopped := f == StopChild || f == StopBoth || f == StopAll
		if left[id] != (f != KillAll) || stopped && gap[id] < lease {
			t.Errorf("%s: it has left: %v; it wrote nothing for %v", f, left[id], gap[id])
		}
	}
}

// TestTrialFinds: each kind of violation is found, and drawn.
func TestTrialFinds(t *testing.T) {
	// A directory that is created. The lock is removed by its holder's end, or never.
	const directory = `sh -c "mkdir PLACE/lock || exit 75; trap 'rmdir PLACE/lock' EXIT; {}"`
	// A file whose holder counts as dead after 2 s.
	const expiring = `sh -c "until (set -C; : >PLACE/lock) 2>&-; do
		[ -n \"\$(find PLACE/lock -newermt '-2 seconds')\" ] || mv PLACE/lock PLACE/\$\$; sleep 0.05; done; {}; rm PLACE/lock"`
	for name, c := range map[string]struct {
		lock   string
		fault  Fault
		name   string
		rounds FaultReport
	}{
		"no lock":                            {"env {}", Outlast, judge.TwoIn, FaultReport{TwoIn: 1}},
		"the child runs on without a lock":   {"flock -o PLACE/lock {}", KillWrapper, judge.TwoIn, FaultReport{TwoIn: 1}},
		"the lock of the dead":               {directory, KillAll, NeverFreed, FaultReport{Blocked: 1}},
		"the lock of the dead, of a child":   {directory, KillWrapper, NeverFreed, FaultReport{Blocked: 1}},
		"a lock that stays":                  {`sh -c "mkdir PLACE/lock || exit 75; {}"`, Calm, NeverFreed, FaultReport{Blocked: 1}},
		"a lock that stays, and waiters":     {`sh -c "until mkdir PLACE/lock; do sleep 0.1; done 2>&-; {}"`, Calm, NeverFreed, FaultReport{Blocked: 1}},
		"a lease, and the child":             {expiring, StopChild, judge.TwoIn, FaultReport{TwoIn: 1}},
		"a lease, and the wrapper":           {expiring, StopWrapper, judge.TwoIn, FaultReport{TwoIn: 1}},
		"a lease, the wrapper and the child": {expiring, StopBoth, judge.TwoIn, FaultReport{TwoIn: 1}},
		"a lease, and all":                   {expiring, StopAll, judge.TwoIn, FaultReport{TwoIn: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			lease := long
			if c.name == NeverFreed {
				lease = time.Second
			}
			holders := []string{"c0-1"}
			if c.fault == Calm { // whoever is the first
				holders = []string{"c0-1", "c1-2", "c2-3"}
			}
			tr, _ := newTrial(t, c.lock, lease, c.fault)
			tr.least.free = 5 * time.Second // the longer, the surer, and it's sure already
			r := tr.run(t)
			v := r.Verdict
			if v.Result != judge.Violated || len(v.Violations) == 0 || v.Violations[0].Name != c.name || !slices.Contains(holders, v.Violations[0].Sections[0]) {
				t.Errorf("%s %s %v", v.Result, v.Why, v.Violations)
			}
			f := *r.Faults[0]
			if f.Rounds != 1 || f.TwoIn != c.rounds.TwoIn || (f.WentOn > 0) != (f.TwoIn > 0) || f.Blocked != c.rounds.Blocked {
				t.Errorf("%+v", f)
			}
			if len(r.Pictures) != 1 || !strings.HasPrefix(r.Pictures[0], string(c.fault)+": ") || !slices.ContainsFunc(holders, func(id string) bool { return strings.Contains(r.Pictures[0], "\n"+id+" exclusive ") }) {
				t.Errorf("%q", r.Pictures)
			}
		})
	}
}

// TestTrialCleans: the command that cleans runs before each round. Without one a trial ends if
// the lock stays held.
func TestTrialCleans(t *testing.T) {
	tr, dir := newTrial(t, `sh -c "mkdir PLACE/lock || exit 75; {}; rmdir PLACE/lock"`, time.Second, KillAll, KillWrapper)
	tr.least.free = 2 * time.Second
	r, err := tr.Run(t.Context())
	if !errors.Is(err, errBlocked) || r.Verdict.Result != judge.Violated {
		t.Errorf("%v: %s", err, r.Verdict.Result)
	}
	tr.Clean = "sh -c 'echo >>" + dir + "/cleaned; rm -rf " + dir + "/lock'"
	tr.Rounds = 2
	r = tr.run(t)
	if r.Faults[0].Blocked != 2 || r.Faults[1].Blocked != 2 {
		t.Errorf("%+v %+v", r.Faults[0], r.Faults[1])
	}
	if text, err := os.ReadFile(filepath.Join(dir, "cleaned")); err != nil || len(text) != 4 {
		t.Errorf("it ran %d times: %v", len(text), err)
	}
	for clean, says := range map[string]string{
		"sh -c 'echo no such table >&2; exit 3'": "failed: exit status 3: no such table",
		"false":                                  "failed: exit status 1",
	} {
		tr.Clean = clean
		if _, err := tr.Run(t.Context()); !errors.Is(err, ErrUnjudged) || !strings.HasSuffix(err.Error(), says) {
			t.Error(err)
		}
	}
}

// TestTrialUnjudged: a trial that has seen nothing isn't one without violations.
func TestTrialUnjudged(t *testing.T) {
	for name, c := range map[string]struct {
		lock  string
		says  string
		least limits
	}{
		"refused":      {`sh -c "echo you may not; exit 77; {}"`, "you may not", limits{time.Second, time.Second}},
		"no word":      {"false {}", "no client got the lock: ", limits{time.Second, time.Second}},
		"no program":   {"PLACE/nowhere {}", "nowhere can't be started", limits{}},
		"another log":  {`sh -c "echo what a child says >>$(ls -d $TMPDIR/*/log); {}"`, "can't be understood", limits{}},
		"without time": {`sh -c "echo '{\"kind\":\"in\",\"id\":\"c0-1\"}' >>$(ls -d $TMPDIR/*/log); {}"`, "it has no time", limits{}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range []Fault{Calm, KillAll} {
				tr, _ := newTrial(t, c.lock, time.Second, f)
				tr.least = c.least
				r, err := tr.Run(t.Context())
				if err == nil || !strings.Contains(err.Error(), c.says) || strings.HasSuffix(err.Error(), ": ") || r.Verdict.Result == judge.NotFound {
					t.Errorf("%s: %v: %s", f, err, r.Verdict.Result)
				}
				tr.nothingLeft(t)
			}
		})
	}
}

// TestTrialElsewhere: a child whose number or clock isn't ours is no witness.
func TestTrialElsewhere(t *testing.T) {
	c := &contender{id: "x"}
	if err := new(trial).found(c, judge.Event{PID: 1, Text: "pid:[1] time:[2]"}); !errors.Is(err, ErrUnjudged) || c.pid != 0 {
		t.Error(err, c.pid)
	}
	if err := new(trial).found(c, judge.Event{PID: os.Getpid(), Text: namespaces()}); err != nil || c.gone() {
		t.Error(err)
	}
}

// TestTrialInterrupted: an interrupted trial ends, gives its verdict, and leaves nothing.
func TestTrialInterrupted(t *testing.T) {
	tr, _ := newTrial(t, "flock PLACE/lock {}", time.Hour, StopAll)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tr.Log = writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("stop-all")) {
			cancel()
		}
		return len(p), nil
	})
	r, err := tr.Run(ctx)
	if err != nil || r.Verdict.Result != judge.NotFound || r.Faults[0].Rounds != 0 || r.Acquisitions() == 0 {
		t.Errorf("%v: %s %+v", err, r.Verdict.Result, r.Faults[0])
	}
	tr.nothingLeft(t)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestTrialPlace: a place that a shell would take apart is refused.
func TestTrialPlace(t *testing.T) {
	tr, dir := newTrial(t, "flock PLACE/lock {}", time.Second, Calm)
	odd := filepath.Join(dir, "it's here")
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", odd)
	if _, err := tr.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Error(err)
	}
	tr.nothingLeft(t)
}
