//go:build unix

package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/plainstore"
)

// arena is a repository in a directory, and a run in it.
type arena struct {
	t     *testing.T
	repo  string
	store plainstore.Objects
	log   bytes.Buffer
}

func newArena(t *testing.T) *arena {
	t.Helper()
	repo := filepath.Join(t.TempDir(), "repo")
	assert.OK(t, errors.Join(os.Mkdir(repo, 0o700), os.WriteFile(repo+".lock", nil, 0o600)))
	s, err := open(t.Context(), repo)
	assert.OK(t, err)
	return &arena{t: t, repo: repo, store: plainstore.Objects{Store: s}}
}

// options returns options for three clients with one of the locks. The test must end the run: only a
// hang reaches its limits, however busy the machine is.
func (a *arena) options(lock string) Options {
	c := command(lock, a.repo)
	return Options{
		Clients: []func(Work) []string{c, c, c}, Prefix: "scratch/", TTL: time.Second, Duration: assert.Hang, Seed: 1,
		Log: &a.log,
	}
}

// nothingLeft checks that the prefix has no object.
func (a *arena) nothingLeft(r Report) {
	a.t.Helper()
	keys, err := a.store.Keys(a.t.Context(), "")
	assert.That(a.t, err == nil && len(keys)+len(r.Left) == 0 && r.LeftBecause == nil, "left: %v %v %v %v", keys, err, r.Left, r.LeftBecause)
}

// run runs the clients until enough reports true.
func (a *arena) run(o Options, enough func(Counts) bool) (Report, error) {
	ctx, cancel := context.WithCancel(a.t.Context())
	defer cancel()
	o.Progress = func(c Counts) {
		if enough(c) {
			cancel()
		}
	}
	return Run(ctx, a.store, o)
}

// TestHolds: a lock that holds has no violation, although processes are killed, stopped and terminated.
// The log has each acquisition.
func TestHolds(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	o := a.options("flock")
	o.Chances = Chances{Exclusive: 0.8, Kill: 0.2, Stop: 0.05, Term: 0.2}
	o.Clients = slices.Repeat(o.Clients, 2)
	all := func(c Counts) bool {
		return c.Acquisitions() >= 20 && c.Shared > 0 && c.Exclusive > 0 && c.Held > 0 && c.Killed > 0 && c.Stopped > 0 && c.Terminated > 0 && c.Writes > 20
	}
	r, err := a.run(o, all)
	assert.That(t, err == nil && r.Verdict.Result == judge.NotFound && len(r.Verdict.Violations) == 0, "%v: %s %s %v", err, r.Verdict.Result, r.Verdict.Why, r.Verdict.Violations)
	c := r.Counts
	assert.That(t, all(c), "%+v", c)
	a.nothingLeft(r)
	in := 0
	for d := json.NewDecoder(&a.log); d.More(); {
		var e judge.Event
		assert.OK(t, d.Decode(&e))
		if e.Kind == judge.In {
			in++
		}
	}
	assert.That(t, in == c.Acquisitions(), "%d of %d acquisitions are in the log", in, c.Acquisitions())
}

// TestFinds: violations are found without a lock, and with a lock that has a hole.
func TestFinds(t *testing.T) {
	for _, lock := range []string{"none", "original"} {
		t.Run(lock, func(t *testing.T) {
			t.Parallel()
			a := newArena(t)
			o := a.options(lock)
			o.Chances = Chances{Exclusive: 0.5}
			o.Clients = slices.Repeat(o.Clients, 2)
			r, err := a.run(o, func(c Counts) bool { return c.Violations > 0 })
			assert.That(t, err == nil && r.Verdict.Result == judge.Violated && r.Counts.Violations > 0, "%v: %s %s %+v", err, r.Verdict.Result, r.Verdict.Why, r.Counts)
		})
	}
}

// TestUnjudged: a run has no verdict if a log can't be parsed or written, or if no client acquires the
// lock. It ends soon, with the reason.
func TestUnjudged(t *testing.T) {
	for lock, c := range map[string]struct {
		log      io.Writer
		duration time.Duration
		unjudged bool
		says     string
		results  []judge.Result
	}{
		"garbage": {io.Discard, time.Minute, true, "what a child says", []judge.Result{judge.Unknown, judge.Violated}},
		"panics":  {io.Discard, time.Minute, true, "broke down", []judge.Result{judge.Unknown, judge.Violated}},
		"flock":   {&lines{}, time.Minute, true, "no space left", []judge.Result{judge.Unknown}},
		"refused": {io.Discard, time.Minute, false, "you may not", []judge.Result{judge.Unknown}},
		"hangs":   {io.Discard, time.Nanosecond, true, "no client got the lock: all were still trying when the run ended", []judge.Result{judge.Unknown}},
	} {
		a := newArena(t)
		o := a.options(lock)
		o.Log, o.Duration = c.log, c.duration
		r, err := a.run(o, func(Counts) bool { return false })
		assert.That(t, errors.Is(err, ErrUnjudged) == c.unjudged && errors.Is(err, fault.TortureFailed) != c.unjudged && strings.Contains(err.Error(), c.says), "%s: %v", lock, err)
		assert.That(t, slices.Contains(c.results, r.Verdict.Result) && (lock != "refused" || fault.Exit(err) == 77 && r.Counts.Failed >= maxFailures), "%s: %s %+v", lock, r.Verdict.Result, r.Counts)
		a.nothingLeft(r)
	}
}

// TestTooFew: a run without a lock of each mode, or with too few attempts that met another holder, has no verdict, and
// says what to change. A violation counts all the same.
func TestTooFew(t *testing.T) {
	all := func(c Counts) bool { return c.Shared > 0 && c.Exclusive > 0 && c.Held > 0 }
	for name, test := range map[string]struct {
		lock         string
		chances      Chances
		conflicts    int
		enough       func(Counts) bool
		result       judge.Result
		says, advice string
	}{
		"shared ones":    {"flock", Chances{}, 1, func(c Counts) bool { return c.Shared >= 3 }, judge.Unknown, " locks was exclusive", "fewer --clients"},
		"exclusive ones": {"flock", Chances{Exclusive: 1}, 1, func(c Counts) bool { return c.Exclusive >= 3 }, judge.Unknown, " locks was shared", "fewer --clients"},
		"few conflicts":  {"flock", Chances{Exclusive: 0.5}, 1e9, all, judge.Unknown, " of the attempts met another holder, and a verdict needs 1000000000", "more --clients"},
		"any":            {"flock", Chances{}, 0, func(c Counts) bool { return c.Shared >= 3 }, judge.NotFound, "", ""},
		"enough":         {"flock", Chances{Exclusive: 0.5}, 1, func(c Counts) bool { return all(c) && c.Conflicts > 0 }, judge.NotFound, "", ""},
		"a violation":    {"none", Chances{Exclusive: 0.5}, 1e9, func(c Counts) bool { return c.Violations > 0 }, judge.Violated, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t)
			o := a.options(test.lock)
			o.Chances, o.Conflicts = test.chances, test.conflicts
			r, err := a.run(o, test.enough)
			assert.Equal(t, r.Verdict.Result, test.result, "%v", err)
			if test.says == "" {
				assert.That(t, err == nil || test.result == judge.Violated, "%v", err)
				return
			}
			assert.That(t, errors.Is(err, ErrUnjudged) && fault.Exit(err) == fault.ExitUnjudged && strings.HasPrefix(err.Error(), ErrUnjudged.Error()+": ") &&
				strings.Contains(err.Error(), test.says) && strings.Contains(fault.Advice(err), test.advice), "%v; %s", err, fault.Advice(err))
			assert.That(t, strings.HasSuffix(err.Error(), ": "+r.Verdict.Why), "%v; why: %s", err, r.Verdict.Why)
			a.nothingLeft(r)
		})
	}
}

// TestFaultOfAWaiter: a fault that is planned for the child of a client comes when the child runs, however long the client
// waits for the lock.
func TestFaultOfAWaiter(t *testing.T) {
	a := &process{id: "x", cmd: exec.Command(os.Args[0], "hangs", "", "{}")}
	assert.OK(t, a.cmd.Start())
	synctest.Test(t, func(t *testing.T) {
		a.in = make(chan struct{}, 1)
		r, over := &run{}, make(chan struct{})
		go r.inflict(t.Context(), a, plan{fault: kill, faultAt: time.Second, inChild: true}, over)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, len(a.events), 0, "faults before the child runs")
		a.in <- struct{}{}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.That(t, len(a.events) == 1 && a.events[0].Text == kill && r.counts.Killed == 1, "%+v", a.events)
		close(over)
	})
	assert.Need(t, a.cmd.Wait() != nil, "it wasn't killed")
}

// TestInterrupted: an interrupted run ends, returns its verdict, cleans up, and reports each step.
func TestInterrupted(t *testing.T) {
	a := newArena(t)
	o := a.options("flock")
	o.Chances = Chances{Long: 1}
	o.TTL = time.Hour // the holds are longer than the test
	var does []string
	o.Ending = func(what string) { does = append(does, what) }
	r, err := a.run(o, func(c Counts) bool { return c.Shared == 3 })
	assert.That(t, err == nil && r.Verdict.Result == judge.NotFound && r.Counts.Shared == 3, "%v: %s %s %+v", err, r.Verdict.Result, r.Verdict.Why, r.Counts)
	assert.Equal(t, does, []string{"waiting for the clients to release their locks", "judging what they did", "deleting the objects, for a minute at most"})
	a.nothingLeft(r)
}
