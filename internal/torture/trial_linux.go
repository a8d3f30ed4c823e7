package torture

import (
	"bytes"
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
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/judge"
)

// trial is the state of a Trial that runs.
type trial struct {
	Trial
	contest
	dir     string   // of this trial; it has no character that is special in a shell
	written *os.File // the log of all children
	random  *rand.Rand
	report  TrialReport
	drawn   map[string]bool // the violations of which there is a picture
	library string          // the path of libfaketime, once it is known
	// shiftless is why no wrong clock reaches the wrapper, once that is known.
	shiftless string

	// These are guarded by contest.mu.
	started    int // contenders
	contenders map[string]*contender
	rest       []byte // the beginning of a line of the log
	failed     error
}

// program is the name of repolock in the directory of a trial.
const program = "repolock"

// plain is a path that no shell changes.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./,:@%+-]+$`)

// Run tries the lock. The end of the context ends it, and is no error. After an error the
// report still has a verdict, in which a violation counts.
func (t Trial) Run(ctx context.Context) (TrialReport, error) {
	dir, err := os.MkdirTemp("", "repolock-torture-")
	if err != nil {
		return TrialReport{}, err
	}
	defer os.RemoveAll(dir)
	if !plain.MatchString(dir) {
		return TrialReport{}, fmt.Errorf("%q has characters that a shell would change: set TMPDIR to another directory", dir)
	}
	r := &trial{Trial: t, dir: dir, random: rand.New(rand.NewPCG(t.Seed, 0)), contenders: map[string]*contender{}, drawn: map[string]bool{}}
	r.contest.log, r.contest.fail = t.Log, func(err error) { r.failed = err }
	if err := os.Symlink(t.Program, filepath.Join(dir, program)); err != nil {
		return TrialReport{}, err
	}
	if r.written, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return TrialReport{}, err
	}
	defer r.written.Close()
	err = r.rounds(ctx)
	if err == nil && r.report.Acquisitions() == 0 && ctx.Err() == nil {
		err = notAcquired(0, "no round was finished")
	}
	r.report.Verdict = r.verdict(err, t.JudgeFor)
	return r.report, err
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
			return fmt.Errorf("%w: no fault could be inflicted: %s: %s", ErrUnjudged, t.report.Left[0].Fault, t.report.Left[0].Why)
		}
	}
}

// clean runs the command that cleans, which must succeed.
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
		return fmt.Errorf("%w: --clean %q failed: %w", ErrUnjudged, t.Clean, err)
	}
	return nil
}

// read reads what the children have written since the last time. contest.mu is held.
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
		c, e, err := understand(line, func(id string) *contender { return t.contenders[id] })
		if err != nil {
			return err
		}
		if e.Kind == judge.In {
			if err := t.found(c, e); err != nil {
				return err
			}
		}
		c.last = e.At
		t.note(&c.process, e)
	}
}

// poll is how often a trial looks at the children's log.
const poll = 5 * time.Millisecond

// until waits until something is so, and reports false if the time is over or the context has
// ended before. contest.mu is held while done runs.
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

// conclude judges a round whose processes have ended, and returns their events by their IDs.
func (t *trial) conclude(f *FaultReport) (found []judge.Violation, events map[string][]judge.Event, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	events = map[string][]judge.Event{}
	var sections []judge.Section
	for id, c := range t.contenders {
		s, err := c.section()
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
	found, _ = judge.Seen(sections)
	return found, events, nil
}

// errBlocked ends a trial that can't go on.
var errBlocked = errors.New("the lock is still held, and the next round can't begin: give a command that frees it, to run before each round")

// library returns the path of libfaketime. A time namespace doesn't do: it has the wall clock
// of all others (time_namespaces(7)).
func library(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "faketime", "-f", "+0", "sh", "-c", "echo $LD_PRELOAD").Output()
	path := strings.TrimSpace(string(out))
	if err == nil && path == "" {
		return "", fmt.Errorf("faketime preloads nothing")
	}
	return path, err
}

// faketime returns the environment in which programs that ask libc for the time see a wall
// clock that is ahead.
func (t *trial) faketime(ahead time.Duration) []string {
	return []string{
		"LD_PRELOAD=" + t.library, fmt.Sprintf("FAKETIME=+%d", int(ahead.Seconds())), "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
}

// omits returns why a fault can't be inflicted, or "".
func (t *trial) omits(ctx context.Context, f Fault) string {
	if f != Clock || t.library != "" {
		return map[bool]string{true: t.shiftless}[f == Clock]
	}
	var err error
	if t.library, err = library(ctx); err != nil {
		return "it needs the program faketime: " + err.Error()
	}
	return ""
}
