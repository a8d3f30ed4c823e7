package torture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/judge"
)

// contest is what Run and Trial.Run have in common: processes that contend for a lock, their events, and the verdict.
type contest struct {
	log  io.Writer   // receives each event, if it isn't nil
	fail func(error) // is called if it can't be written

	mu       sync.Mutex
	sections []judge.Section
	extra    []judge.Violation // those that the judge can't see
}

// process takes the lock, and runs a child under it.
type process struct {
	id     string
	client int
	mode   judge.Mode
	cmd    *exec.Cmd
	events []judge.Event // guarded by contest.mu
}

// start starts a process in a group of its own. contest.mu is held.
func (k *contest) start(p *process) error {
	apart(p.cmd)
	at := clock.System{}.Elapsed()
	if err := p.cmd.Start(); err != nil {
		return err
	}
	k.note(p, judge.Event{Kind: judge.Start, At: at, Client: p.client, Mode: p.mode})
	return nil
}

// note adds an event: ours, or one of the child, which has a time. contest.mu is held.
func (k *contest) note(p *process, e judge.Event) {
	e.ID = p.id
	if e.At == 0 {
		e.At = clock.System{}.Elapsed()
	}
	p.events = append(p.events, e)
	if k.log == nil {
		return
	}
	if err := write(k.log, e); err != nil {
		k.fail(err)
	}
}

// add is note without contest.mu.
func (k *contest) add(p *process, e judge.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note(p, e)
}

// write writes an event to a log, as one line.
func write(log io.Writer, e judge.Event) error {
	if err := json.NewEncoder(log).Encode(e); err != nil {
		return fmt.Errorf("%w: the log can't be written: %w", ErrUnjudged, err)
	}
	return nil
}

// understand reads a line of a child's log. find returns the process with an ID, or nil.
func understand[P any](line []byte, find func(id string) *P) (*P, judge.Event, error) {
	e, err := parse(line)
	p := find(e.ID)
	if err == nil && p == nil {
		err = fmt.Errorf("it is of %q", e.ID)
	}
	if err != nil {
		return nil, e, fmt.Errorf("%w: a line of a child's log can't be understood: %.200q: %w", ErrUnjudged, line, err)
	}
	return p, e, nil
}

// parse reads a line of a child.
func parse(line []byte) (e judge.Event, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return e, err
	}
	if d.More() {
		return e, errors.New("there is more on it")
	}
	switch e.Kind {
	case judge.Start, judge.End, judge.Fault:
		return e, fmt.Errorf("a child doesn't log %q", e.Kind)
	}
	if e.At <= 0 {
		return e, errors.New("it has no time")
	}
	return e, nil
}

// section returns the critical section of a process that has ended. Its events aren't added to any more.
func (p *process) section() (judge.Section, error) {
	s, err := judge.Read(p.events)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnjudged, err)
	}
	return s, err
}

// verdict judges the sections. After an error that has ended the contest, only a violation is a verdict.
func (k *contest) verdict(failed error, limit time.Duration) judge.Verdict {
	v := judge.Judge(k.sections, limit)
	if v.Violations = append(v.Violations, k.extra...); len(v.Violations) > 0 {
		v.Result = judge.Violated
	}
	if failed != nil && v.Result == judge.NotFound {
		v.Result, v.Why = judge.Unknown, failed.Error()
	}
	return v
}

// output keeps the first 16 KiB of a process's stderr.
type output struct{ text bytes.Buffer }

const maxOutput = 16 << 10

func (o *output) Write(p []byte) (int, error) {
	o.text.Write(p[:min(len(p), maxOutput-o.text.Len())])
	return len(p), nil
}

// lastLine returns the last line of an output.
func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return lines[len(lines)-1]
}
