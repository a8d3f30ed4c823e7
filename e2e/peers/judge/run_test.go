//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/procstat"
	"github.com/repolock/repolock/internal/test/assert"
)

// long is a lease for a round that a violation ends before the lease is over.
const long = time.Minute

// place makes the temporary directory of a test's trials. The test fails if they leave a file or a
// process.
func place(t *testing.T, name string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	assert.OK(t, os.Mkdir(dir, 0o700))
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		assert.Equal(t, procstat.Marked(mark+"="+dir), nil, "processes that are left")
		files, err := os.ReadDir(dir)
		assert.That(t, err == nil && len(files) == 0, "left: %v %v", files, err)
	})
}

// newTrial returns a trial with three clients, and a new directory, which replaces PLACE in the command
// line of the lock.
func newTrial(t *testing.T, lock string, lease time.Duration, faults ...Fault) (Trial, string) {
	t.Helper()
	dir := t.TempDir()
	program, err := os.Executable()
	assert.OK(t, err)
	return Trial{
		Exclusive: strings.ReplaceAll(lock, "PLACE", dir), Program: program, Clients: 3, Lease: lease, Faults: faults, Rounds: 1, Seed: 1,
	}, dir
}

// run runs a trial that must not fail.
func (tr Trial) run(t *testing.T) TrialReport {
	t.Helper()
	assert.OK(t, tr.Check())
	r, err := tr.Run(t.Context())
	assert.That(t, err == nil, "%v\n%s", err, strings.Join(r.Pictures, "\n"))
	return r
}

// together runs tests at the same time: they wait most of the time.
func together[C any](t *testing.T, cases map[string]C, run func(t *testing.T, c C)) {
	t.Helper()
	var all sync.WaitGroup
	for name, c := range cases {
		all.Go(func() { t.Run(name, func(t *testing.T) { run(t, c) }) })
	}
	all.Wait()
}

// TestTrialHolds: flock has no violation under any fault, because the child has the file too and so
// holds the lock to its end.
func TestTrialHolds(t *testing.T) {
	place(t, "trials")
	faults := map[string]Fault{}
	for _, f := range TrialFaults() {
		if f != Clock {
			faults[string(f)] = f
		}
	}
	together(t, faults, func(t *testing.T, f Fault) {
		tr, _ := newTrial(t, "flock PLACE/lock {}", time.Second, f)
		tr.Shared = strings.Replace(tr.Exclusive, "flock ", "flock -s ", 1)
		var log bytes.Buffer
		tr.Log = &log
		r := tr.run(t)
		v := r.Verdict
		assert.That(t, v.Result == judge.NotFound && len(v.Violations)+len(r.Pictures)+len(r.Left) == 0, "%s %s %v\n%s", v.Result, v.Why, v.Violations, strings.Join(r.Pictures, "\n"))
		got := r.Faults[0]
		assert.That(t, got.Fault == f && got.Rounds == 1 && got.Locks >= 2 && got.TwoIn+got.Blocked == 0, "%+v", got)
		if f != Calm && f != Outlast {
			inflicted(t, &log, f, tr.Lease)
		}
	})
}

// inflicted checks in the log that a fault hit the right processes: only after kill-all the child doesn't
// log its end, and a stopped child logs nothing for a lease.
func inflicted(t *testing.T, log *bytes.Buffer, f Fault, lease time.Duration) {
	t.Helper()
	holder, left, last, gap := "", map[string]bool{}, map[string]time.Duration{}, map[string]time.Duration{}
	for d := json.NewDecoder(log); d.More(); {
		var e judge.Event
		assert.OK(t, d.Decode(&e))
		switch e.Kind {
		case judge.Fault:
			if strings.HasPrefix(e.Text, string(f)+" (the wrapper is ") {
				holder = e.ID
			}
		case judge.Out:
			left[e.ID] = true
		case judge.In:
			last[e.ID] = e.At
		case judge.Beat:
			gap[e.ID], last[e.ID] = max(gap[e.ID], e.At-last[e.ID]), e.At
		}
	}
	stopped := f == StopChild || f == StopBoth || f == StopAll
	assert.That(t, holder != "" && left[holder] == (f != KillAll) && (!stopped || gap[holder] >= lease), "%q has left: %v; it wrote nothing for %v", holder, left[holder], gap[holder])
}

// TestTrialFinds: each kind of violation is found and drawn.
func TestTrialFinds(t *testing.T) {
	place(t, "trials")
	// The lock is a directory. Only the end of its holder's shell removes it.
	const directory = `sh -c "mkdir PLACE/lock || { sleep 0.2; exit 75; }; trap 'rmdir PLACE/lock' EXIT; {}"`
	// The lock is a file, which another client may replace after 2 s.
	const expiring = `sh -c "until (set -C; : >PLACE/lock) 2>&-; do
		[ -n \"\$(find PLACE/lock -newermt '-2 seconds')\" ] || mv PLACE/lock PLACE/\$\$; sleep 0.1; done; {}; rm PLACE/lock"`
	type found struct {
		lock  string
		fault Fault
		name  string
	}
	// Refused clients wait before they end: on a busy machine the round could be over before they are
	// started again.
	together(t, map[string]found{
		"no lock":                            {"env {}", Outlast, judge.TwoIn},
		"the child runs on without a lock":   {"flock -o PLACE/lock {}", KillWrapper, judge.TwoIn},
		"the lock of the dead":               {directory, KillAll, NeverFreed},
		"the lock of the dead, of a child":   {directory, KillWrapper, NeverFreed},
		"a lock that stays":                  {`sh -c "mkdir PLACE/lock || { sleep 30; exit 75; }; {}"`, Calm, NeverFreed},
		"a lock that stays, and waiters":     {`sh -c "until mkdir PLACE/lock; do sleep 0.1; done 2>&-; {}"`, Calm, NeverFreed},
		"a lease, and the child":             {expiring, StopChild, judge.TwoIn},
		"a lease, and the wrapper":           {expiring, StopWrapper, judge.TwoIn},
		"a lease, the wrapper and the child": {expiring, StopBoth, judge.TwoIn},
		"a lease, and all":                   {expiring, StopAll, judge.TwoIn},
	}, func(t *testing.T, c found) {
		two, blocked, lease := 1, 0, long
		if c.name == NeverFreed {
			two, blocked, lease = 0, 1, time.Second
		}
		holders := []string{"c0-1"}
		if c.fault == Calm { // any client can be the first
			holders = []string{"c0-1", "c1-2", "c2-3"}
		}
		tr, _ := newTrial(t, c.lock, lease, c.fault)
		tr.freeLimit = time.Second
		r := tr.run(t)
		v := r.Verdict
		if v.Result != judge.Violated || len(v.Violations) == 0 || v.Violations[0].Name != c.name || !slices.Contains(holders, v.Violations[0].Sections[0]) {
			t.Errorf("%s %s %v", v.Result, v.Why, v.Violations)
		}
		f := *r.Faults[0]
		assert.That(t, f.Rounds == 1 && f.TwoIn == two && (f.WentOn > 0) == (f.TwoIn > 0) && f.Blocked == blocked, "%+v", f)
		if len(r.Pictures) != 1 || !strings.HasPrefix(r.Pictures[0], string(c.fault)+": ") || !slices.ContainsFunc(holders, func(id string) bool { return strings.Contains(r.Pictures[0], "\n"+id+" exclusive ") }) {
			t.Errorf("%q", r.Pictures)
		}
	})
}

// TestTrialCleans: Clean runs before each round. Without it, a lock that stays held ends the trial.
func TestTrialCleans(t *testing.T) {
	place(t, "trials")
	tr, dir := newTrial(t, `sh -c "mkdir PLACE/lock || { sleep 0.2; exit 75; }; {}; rmdir PLACE/lock"`, time.Second, KillAll, KillWrapper)
	tr.freeLimit = time.Second
	r, err := tr.Run(t.Context())
	assert.That(t, errors.Is(err, errBlocked) && r.Verdict.Result == judge.Violated, "%v: %s", err, r.Verdict.Result)
	tr.Clean = "sh -c 'echo >>" + dir + "/cleaned; rm -rf " + dir + "/lock'"
	tr.Rounds = 2
	r = tr.run(t)
	assert.That(t, r.Faults[0].Blocked == 2 && r.Faults[1].Blocked == 2, "%+v %+v", r.Faults[0], r.Faults[1])
	text, err := os.ReadFile(filepath.Join(dir, "cleaned"))
	assert.That(t, err == nil && len(text) == 4, "it ran %d times: %v", len(text), err)
	for clean, says := range map[string]string{
		"sh -c 'echo no such table >&2; exit 3'": "failed: exit status 3: no such table",
		"false":                                  "failed: exit status 1",
	} {
		tr.Clean = clean
		assert.Says(t, assert.Err(tr.Run(t.Context())), fault.Unjudged, says)
	}
}

// TestTrialUnjudged: a trial has no verdict if a log can't be understood, or no client acquires the lock.
func TestTrialUnjudged(t *testing.T) {
	place(t, "trials")
	type unjudged struct {
		lock, says string
		fault      Fault
	}
	cases := map[string]unjudged{}
	for lock, says := range map[string]string{
		`sh -c "sleep 0.3; echo you may not; exit 77; {}"`:             "you may not",
		`sh -c "sleep 0.3; exit 1; {}"`:                                "no client got the lock: ",
		"PLACE/nowhere {}":                                             "nowhere can't be started",
		`sh -c "echo what a child says >>$3; {}" {}`:                   "can't be understood",
		`sh -c "echo '{\"kind\":\"in\",\"id\":\"c0-1\"}' >>$3; {}" {}`: "it has no time",
	} {
		for _, f := range []Fault{Calm, KillAll} {
			cases[says+" under "+string(f)] = unjudged{lock, says, f}
		}
	}
	together(t, cases, func(t *testing.T, c unjudged) {
		tr, _ := newTrial(t, c.lock, 100*time.Millisecond, c.fault)
		tr.freeLimit, tr.startLimit = time.Millisecond, 3*time.Second
		r, err := tr.Run(t.Context())
		assert.That(t, err != nil && strings.Contains(err.Error(), c.says) && !strings.HasSuffix(err.Error(), ": ") && r.Verdict.Result != judge.NotFound, "%v: %s", err, r.Verdict.Result)
	})
}

// TestTrialElsewhere: a child with pids or a clock of its own is an error.
func TestTrialElsewhere(t *testing.T) {
	c := &contender{id: "x"}
	assert.Is(t, c.entered(judge.Event{PID: 1, Text: "pid:[1] time:[2]"}), fault.Unjudged)
	assert.That(t, c.pid == 0, "the child is known")
	assert.OK(t, c.entered(judge.Event{PID: os.Getpid(), Text: namespaces()}))
	assert.That(t, !c.gone(), "this process has ended")
}

// TestTrialInterrupted: an interrupted trial ends, returns its verdict, and leaves nothing.
func TestTrialInterrupted(t *testing.T) {
	place(t, "trials")
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
	assert.That(t, err == nil && r.Verdict.Result == judge.NotFound && r.Faults[0].Rounds == 0 && r.Acquisitions() > 0, "%v: %s %+v", err, r.Verdict.Result, r.Faults[0])
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestTrialPlace: a temporary directory with a character that is special in a shell is refused.
func TestTrialPlace(t *testing.T) {
	place(t, "it's here")
	tr, _ := newTrial(t, "flock PLACE/lock {}", time.Second, Calm)
	err := assert.Err(tr.Run(t.Context()))
	assert.That(t, err != nil && strings.Contains(err.Error(), "TMPDIR"), "%v", err)
}
