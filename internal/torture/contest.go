package torture

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/judge"
)

// contest is the common part of Run and Trial.Run: processes that contend for a lock, their events, and
// the verdict.
type contest struct {
	log io.Writer // receives each event, if it isn't nil

	mu       sync.Mutex
	cancel   context.CancelFunc // ends all clients
	failed   error              // the reason why the contest has no result
	sections []judge.Section
	extra    []judge.Violation // violations that package judge can't find
}

// fail ends the contest without a result. mu is held.
func (k *contest) fail(err error) {
	k.failed = cmp.Or(k.failed, err)
	k.cancel()
}

// process takes the lock, and runs a child under it.
type process struct {
	id     string
	client int
	mode   judge.Mode
	cmd    *exec.Cmd
	events []judge.Event // guarded by contest.mu
}

// start starts a process in a group of its own. mu is held.
func (k *contest) start(p *process) error {
	apart(p.cmd)
	at := clock.System{}.Elapsed()
	if err := p.cmd.Start(); err != nil {
		return err
	}
	k.note(p, judge.Event{Kind: judge.Start, At: at, Client: p.client, Mode: p.mode})
	return nil
}

// note adds an event to the history of a process. An event without a time gets the current one. mu is
// held.
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

// add is note for a caller that doesn't hold mu.
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

// parse parses a line of a child's log. known reports whether there is a child with this ID.
func parse(line []byte, known func(id string) bool) (e judge.Event, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	err = d.Decode(&e)
	switch {
	case err != nil:
	case d.More():
		err = errors.New("it has more than one entry")
	case e.Kind == judge.Start, e.Kind == judge.End, e.Kind == judge.Fault:
		err = fmt.Errorf("a child doesn't log %q", e.Kind)
	case e.At <= 0:
		err = errors.New("it has no time")
	case !known(e.ID):
		err = fmt.Errorf("there is no child %q", e.ID)
	}
	if err != nil {
		err = fmt.Errorf("%w: a line of a child's log can't be understood: %.200q: %w", ErrUnjudged, line, err)
	}
	return e, err
}

// section returns the critical section of a process that has ended. No event is added afterwards.
func (p *process) section() (judge.Section, error) {
	s, err := judge.Read(p.events)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnjudged, err)
	}
	return s, err
}

// verdict judges the sections. If the contest has failed, only a violation counts as a verdict.
func (k *contest) verdict(failed error) judge.Verdict {
	v := judge.Judge(k.sections)
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

func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return lines[len(lines)-1]
}
