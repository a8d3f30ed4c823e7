package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/judge"
)

// trial is the state of a Trial that runs.
type trial struct {
	Trial
	dir     string // of this trial; it has no character that is special in a shell
	log     *os.File
	random  *rand.Rand
	report  TrialReport
	drawn   map[string]bool // the violations of which there is a picture
	library string          // the path of libfaketime, once it is known
	// shiftless is why no wrong clock reaches the wrapper, once that is known.
	shiftless string

	mu         sync.Mutex
	started    int // contenders
	contenders map[string]*contender
	rest       []byte // the beginning of a line of the log
	sections   []judge.Section
	extra      []judge.Violation // those that the judge can't see
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
	if err := os.Symlink(t.Program, filepath.Join(dir, program)); err != nil {
		return TrialReport{}, err
	}
	if r.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return TrialReport{}, err
	}
	defer r.log.Close()
	err = r.rounds(ctx)
	r.report.Verdict = judge.Judge(r.sections, t.JudgeFor)
	v := &r.report.Verdict
	if v.Violations = append(v.Violations, r.extra...); len(v.Violations) > 0 {
		v.Result = judge.Violated
	}
	if err == nil && r.report.Acquisitions() == 0 && ctx.Err() == nil {
		err = notAcquired(0, "no round was finished")
	}
	if err != nil && v.Result == judge.NotFound {
		v.Result, v.Why = judge.Unknown, err.Error()
	}
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
		var o output
		_, _ = o.Write(out)
		if last := o.last(); last != "" {
			err = fmt.Errorf("%w: %s", err, last)
		}
		return fmt.Errorf("%w: --clean %q failed: %w", ErrUnjudged, t.Clean, err)
	}
	return nil
}

// note adds an event of ours, or of a child, which has a time. t.mu is held.
func (t *trial) note(c *contender, e judge.Event) {
	e.ID = c.id
	if e.At == 0 {
		e.At = clock.System{}.Elapsed()
	}
	c.events = append(c.events, e)
	if t.Log == nil {
		return
	}
	if err := json.NewEncoder(t.Log).Encode(e); err != nil {
		t.failed = fmt.Errorf("%w: the log can't be written: %w", ErrUnjudged, err)
	}
}

// read reads what the children have written since the last time. t.mu is held.
func (t *trial) read() error {
	more, err := io.ReadAll(t.log)
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
		e, err := parse(line)
		c := t.contenders[e.ID]
		if err == nil && c == nil {
			err = fmt.Errorf("it is of %q", e.ID)
		}
		if err != nil {
			return fmt.Errorf("%w: a line of the children's log can't be understood: %.200q: %w", ErrUnjudged, line, err)
		}
		if e.Kind == judge.In {
			if err := t.found(c, e); err != nil {
				return err
			}
		}
		c.last = e.At
		t.note(c, e)
	}
}

// poll is how often a trial looks at the children's log.
const poll = 5 * time.Millisecond

// until waits until something is so, and reports false if the time is over or the context has
// ended before. t.mu is held while done runs.
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
		s, err := judge.Read(c.events)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrUnjudged, err)
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
	return judge.Seen(sections), events, nil
}

// errBlocked ends a trial that can't go on.
var errBlocked = errors.New("the lock is still held, and the next round can't begin: give a command that frees it, to run before each round")
