//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
)

// trial is the state of Trial.Run.
type trial struct {
	Trial
	dir       string   // for the files of this trial
	written   *os.File // the log of all children
	random    *rand.Rand
	report    TrialReport
	drawn     map[string]bool // the fault and the violation of each picture, joined
	library   string          // the path of libfaketime, once it is known
	unshifted string          // why the wrapper doesn't see a wrong clock, once that is known

	neverFreed []judge.Violation  // of locks that stay held: package judge can't find them
	cancel     context.CancelFunc // ends the clients of this round

	mu         sync.Mutex            // guards the fields below, Log and the contenders' own
	failed     error                 // the reason why the trial has no result
	sections   []judge.Section       // of the rounds that are over
	started    int                   // number of contenders
	contenders map[string]*contender // of this round, by id
	rest       []byte                // the incomplete last line of the log
}

// program is the name of this program in the directory of a trial.
const program = "judge"

// plain matches a path without characters that are special in a shell.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./,:@%+-]+$`)

// Run tries the lock. The end of the context ends the trial, and is no error. Even a failed trial's report has a
// verdict, and a violation in it counts.
func (t Trial) Run(ctx context.Context) (TrialReport, error) {
	dir, err := os.MkdirTemp("", "repolock-judge-")
	if err != nil {
		return TrialReport{}, err
	}
	defer os.RemoveAll(dir)
	if !plain.MatchString(dir) {
		return TrialReport{}, fmt.Errorf("%q has characters that are special in a shell: set TMPDIR to another directory", dir)
	}
	r := &trial{Trial: t, dir: dir, random: rand.New(rand.NewPCG(t.Seed, 0)), contenders: map[string]*contender{}, drawn: map[string]bool{}}
	if err := os.Symlink(t.Program, filepath.Join(dir, program)); err != nil {
		return TrialReport{}, err
	}
	if r.written, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return TrialReport{}, err
	}
	defer r.written.Close()
	err = r.rounds(ctx)
	if err == nil && r.report.Acquisitions() == 0 && ctx.Err() == nil {
		err = notAcquired("no round was finished")
	}
	r.report.Verdict = r.verdict(err)
	return r.report, err
}

// notAcquired is the error of a trial in which no client acquired the lock.
func notAcquired(says string) error {
	return fault.New(fault.TortureFailed, "no client got the lock: %s", says)
}

// verdict judges all rounds. If the trial has failed, only a violation counts as a verdict.
func (t *trial) verdict(failed error) judge.Verdict {
	v := judge.Judge(t.sections)
	if v.Violations = append(v.Violations, t.neverFreed...); len(v.Violations) > 0 {
		v.Result = judge.Violated
	}
	if failed != nil && v.Result == judge.NotFound {
		v.Result, v.Why = judge.Unknown, failed.Error()
	}
	return v
}

// fail ends the trial without a result. mu is held.
func (t *trial) fail(err error) {
	t.failed = cmp.Or(t.failed, err)
	t.cancel()
}

// note adds an event to the history of a contender. An event without a time gets the current one. mu is held.
func (t *trial) note(c *contender, e judge.Event) {
	e.ID = c.id
	if e.At == 0 {
		e.At = clock.System{}.Elapsed()
	}
	c.events = append(c.events, e)
	if t.Log == nil {
		return
	}
	if err := judge.Write(t.Log, e); err != nil {
		t.fail(err)
	}
}

// add is note for a caller that doesn't hold mu.
func (t *trial) add(c *contender, e judge.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note(c, e)
}

// rounds inflicts the faults in turn.
func (t *trial) rounds(ctx context.Context) error {
	end := clock.System{}.Elapsed() + t.Duration
	for n := 0; ; n++ {
		for _, f := range t.Faults {
			if n > 0 && (t.Rounds > 0 && n >= t.Rounds || t.Rounds == 0 && clock.System{}.Elapsed() >= end) || ctx.Err() != nil {
				return nil
			}
			if why := t.omits(ctx, f); why != "" {
				if n == 0 {
					t.report.Left = append(t.report.Left, Omitted{f, why})
				}
				continue
			}
			if err := t.clean(ctx); err != nil {
				return err
			}
			err := t.round(ctx, f)
			if t.Progress != nil {
				t.Progress(t.report)
			}
			if err != nil {
				return err
			}
		}
		if len(t.report.Left) == len(t.Faults) {
			return fmt.Errorf("%w: no fault could be inflicted: %s: %s", fault.Unjudged, t.report.Left[0].Fault, t.report.Left[0].Why)
		}
	}
}

// clean runs Clean, which must succeed.
func (t *trial) clean(ctx context.Context) error {
	if t.Clean == "" {
		return nil
	}
	args, err := words(t.Clean)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil && ctx.Err() == nil {
		if last := lastLine(string(out)); last != "" {
			err = fmt.Errorf("%w: %s", err, last)
		}
		return fmt.Errorf("%w: --clean %q failed: %w", fault.Unjudged, t.Clean, err)
	}
	return nil
}

// read notes the entries that the children have logged since the last call. trial.mu is held.
func (t *trial) read() error {
	more, err := io.ReadAll(t.written)
	if err != nil {
		return err
	}
	t.rest = append(t.rest, more...)
	for {
		line, rest, whole := bytes.Cut(t.rest, []byte("\n"))
		if !whole {
			return t.failed
		}
		t.rest = rest
		e, err := judge.Parse(line, func(id string) bool { return t.contenders[id] != nil })
		if err != nil {
			return err
		}
		c := t.contenders[e.ID]
		if e.Kind == judge.In {
			if err := c.entered(e); err != nil {
				return err
			}
		}
		c.last = e.At
		t.note(c, e)
	}
}

// poll is the interval at which a trial reads the children's log.
const poll = 5 * time.Millisecond

// until waits until done reports true. It reports false if the limit or the end of the context comes
// first. trial.mu is held while done runs.
func (t *trial) until(ctx context.Context, limit time.Duration, done func() bool) (bool, error) {
	end := clock.System{}.Elapsed() + limit
	for {
		t.mu.Lock()
		err := t.read()
		is := err == nil && done()
		t.mu.Unlock()
		now := clock.System{}.Elapsed()
		if is || err != nil || ctx.Err() != nil || now >= end {
			return is, err
		}
		_ = clock.Sleep(ctx, clock.System{}, poll)
	}
}

// conclude judges a round whose processes have ended, and returns its events by the contenders' IDs.
func (t *trial) conclude(f *FaultReport) (found []judge.Violation, events map[string][]judge.Event, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	events = map[string][]judge.Event{}
	var sections []judge.Section
	for id, c := range t.contenders {
		s, err := judge.Read(c.events)
		if err != nil {
			return nil, nil, err
		}
		sections = append(sections, s)
		switch {
		case s.Entered:
			f.Locks++
		case c.refused:
			f.Refused++
		}
		events[id] = c.events
		_ = os.Remove(c.out)
		delete(t.contenders, id)
	}
	t.sections = append(t.sections, sections...)
	return judge.Judge(sections).Violations, events, nil
}

// errBlocked ends a trial whose lock stays held.
var errBlocked = errors.New("the lock is still held, so the next round can't begin: name a command that frees it by --clean")

// library returns the path of libfaketime. A time namespace can't replace libfaketime, because all namespaces
// share one wall clock: time_namespaces(7).
func library(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "faketime", "-f", "+0", "sh", "-c", "echo $LD_PRELOAD").Output()
	path := strings.TrimSpace(string(out))
	if err == nil && path == "" {
		return "", errors.New("faketime preloads nothing")
	}
	return path, err
}

// faketime returns the environment for a client under a fault: with Clock, programs that ask libc for
// the time see a wall clock that is ahead.
func (t *trial) faketime(f Fault, ahead time.Duration) []string {
	if f != Clock {
		return nil
	}
	return []string{
		"LD_PRELOAD=" + t.library, fmt.Sprintf("FAKETIME=+%d", int(ahead.Seconds())), "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
}

// omits returns why a fault can't be inflicted, or "".
func (t *trial) omits(ctx context.Context, f Fault) string {
	if f != Clock {
		return ""
	}
	if t.library == "" && t.unshifted == "" {
		var err error
		if t.library, err = library(ctx); err != nil {
			t.unshifted = "it needs the program faketime: " + err.Error()
		}
	}
	return t.unshifted
}
