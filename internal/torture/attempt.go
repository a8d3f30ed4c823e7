package torture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/judge"
)

// attempt is one process that takes the lock, with its child.
type attempt struct {
	run  *run
	plan plan
	cmd  *exec.Cmd

	mu     sync.Mutex
	events []judge.Event
}

// slack is the time beyond its hold after which a process counts as hanging.
const slack = 3 * time.Minute

// grace is the time between SIGTERM and SIGKILL.
const grace = 10 * time.Second

// attempt starts the process, follows it to its end, and reports whether its child ran. After
// an error there is no verdict.
func (r *run) attempt(ctx context.Context, n int, c Client, p plan) (entered bool, err error) {
	args := c.Command(p.Work)
	a := &attempt{run: r, plan: p, cmd: exec.Command(args[0], args[1:]...)}
	var stderr output
	a.cmd.Env = append(os.Environ(), c.Env...)
	a.cmd.Stderr = &stderr
	a.cmd.WaitDelay = grace // for a process that has left its group, and has stderr
	apart(a.cmd)

	log, theirs, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer log.Close()
	a.cmd.Stdout = theirs
	a.note(judge.Event{Kind: judge.Start, Client: n, Mode: p.Mode})
	err = a.cmd.Start()
	theirs.Close()
	if err != nil {
		return false, fmt.Errorf("%s can't be started: %w", args[0], err)
	}
	_ = log.SetReadDeadline(time.Now().Add(p.Hold + p.stopFor + slack))

	over := make(chan struct{})
	var inflicting sync.WaitGroup
	inflicting.Go(func() { a.inflict(ctx, over) })
	err = a.follow(log)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %s didn't end in %v: %s", ErrUnjudged, p.ID, p.Hold+p.stopFor+slack, stderr.last())
	}
	if err != nil {
		_ = a.cmd.Process.Kill()
	}
	_ = a.cmd.Wait() // its error is the state
	close(over)
	inflicting.Wait()
	a.note(judge.Event{Kind: judge.End, Text: strings.TrimSpace(a.cmd.ProcessState.String() + "\n" + stderr.String())})
	if err != nil {
		return false, err
	}
	section, err := judge.Read(a.events)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnjudged, err)
	}
	return section.Entered, r.account(section, a.cmd.ProcessState.ExitCode(), &stderr)
}

// note adds an event: ours, or one of the child, which has a time.
func (a *attempt) note(e judge.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.ID = a.plan.ID
	if e.At == 0 {
		e.At = clock.System{}.Elapsed()
	}
	a.events = append(a.events, e)
	a.run.log(e)
}

// follow reads the child's log until every possible writer has ended: repolock, the child,
// and the processes that it started.
func (a *attempt) follow(log io.Reader) error {
	var bad error
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if bad != nil {
			continue // read on, so that the writer doesn't block
		}
		e, err := parse(lines.Bytes())
		if err == nil && e.ID != a.plan.ID {
			err = fmt.Errorf("it is of %q", e.ID)
		}
		if err != nil {
			bad = fmt.Errorf("%w: a line of %s's log can't be understood: %.200q: %w", ErrUnjudged, a.plan.ID, lines.Text(), err)
			continue
		}
		a.note(e)
		if e.Kind == judge.In {
			a.run.count(string(a.plan.Mode))
		}
	}
	return errors.Join(bad, lines.Err())
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

// inflict inflicts the planned fault, and ends the process when the run ends.
func (a *attempt) inflict(ctx context.Context, over <-chan struct{}) {
	wait := func(d time.Duration) (in bool) {
		select {
		case <-clock.System{}.After(d):
			return true
		case <-ctx.Done():
		case <-over:
		}
		return false
	}
	if f := a.plan.fault; f != none && wait(a.plan.faultAt) && a.signal(string(f), signals[f]) {
		a.run.count(string(f))
		if f == stop {
			wait(a.plan.stopFor)
			a.signal("continue", sigcont)
		}
	}
	select {
	case <-over:
		return
	case <-ctx.Done():
	}
	if sig := signals[term]; sig != nil {
		a.signal("end of the run", sig)
		select {
		case <-over:
			return
		case <-clock.System{}.After(grace):
		}
	}
	_ = a.cmd.Process.Kill()
}

// signal logs a fault and sends its signal. It reports false if this system has no such signal
// or the process has ended.
func (a *attempt) signal(fault string, sig os.Signal) bool {
	if sig == nil {
		return false
	}
	a.note(judge.Event{Kind: judge.Fault, Text: fault})
	return a.cmd.Process.Signal(sig) == nil
}

// output keeps the first 16 KiB of a process's stderr.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

const maxOutput = 16 << 10

func (t *output) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b.Write(p[:min(len(p), maxOutput-t.b.Len())])
	return len(p), nil
}

func (t *output) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// last returns the last line.
func (t *output) last() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	return lines[len(lines)-1]
}
