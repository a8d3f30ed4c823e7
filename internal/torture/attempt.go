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
	"github.com/repolock/repolock/internal/history"
)

// attempt is one process that takes the lock, with its child.
type attempt struct {
	run  *run
	plan plan
	cmd  *exec.Cmd

	mu     sync.Mutex
	events []history.Event
}

// slack is how much longer than its hold a process may take before it counts as one
// that hangs.
const slack = 3 * time.Minute

// grace is how long a process may take to end that was told to.
const grace = 10 * time.Second

// attempt starts the process, follows it to its end, and gives its stay. The error is
// one after which nothing can be said of the run.
func (r *run) attempt(ctx context.Context, n int, c Client, p plan) (history.Stay, error) {
	args := c.Command(p.Work)
	a := &attempt{run: r, plan: p, cmd: exec.Command(args[0], args[1:]...)}
	var stderr tail
	a.cmd.Env = append(os.Environ(), c.Env...)
	a.cmd.Stderr = &stderr
	a.cmd.WaitDelay = grace // for a process that has left its group, and has stderr
	apart(a.cmd)

	log, theirs, err := os.Pipe()
	if err != nil {
		return history.Stay{}, err
	}
	defer log.Close()
	a.cmd.Stdout = theirs
	start := history.Event{Kind: history.Start, Client: n, Mode: p.Mode}
	a.note(start)
	err = a.cmd.Start()
	theirs.Close()
	if err != nil {
		return history.Stay{}, fmt.Errorf("%s can't be started: %w", args[0], err)
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
	a.note(history.Event{Kind: history.End, Text: strings.TrimSpace(a.cmd.ProcessState.String() + "\n" + stderr.String())})
	if err != nil {
		return history.Stay{}, err
	}
	stay, err := history.Read(a.events)
	if err != nil {
		return history.Stay{}, fmt.Errorf("%w: %w", ErrUnjudged, err)
	}
	return stay, r.account(stay, a.cmd.ProcessState.ExitCode(), &stderr)
}

// note adds an event of ours, or of the child if it has a time.
func (a *attempt) note(e history.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.ID = a.plan.ID
	if e.At == 0 {
		e.At = clock.System{}.Elapsed()
	}
	a.events = append(a.events, e)
	a.run.log(e)
}

// follow reads the child's log until nobody is left who could write it: repolock, the
// child and what it may have started.
func (a *attempt) follow(log io.Reader) error {
	var bad error
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if bad != nil {
			continue // so that the writer isn't held up
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
		a.run.saw(a.plan.Mode, e)
	}
	return errors.Join(bad, lines.Err())
}

// parse reads a line of a child.
func parse(line []byte) (e history.Event, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return e, err
	}
	if d.More() {
		return e, errors.New("there is more on it")
	}
	switch e.Kind {
	case history.Start, history.End, history.Fault:
		return e, fmt.Errorf("a child doesn't say %q", e.Kind)
	}
	if e.At <= 0 {
		return e, errors.New("it has no time")
	}
	return e, nil
}

// inflict does what is planned, and ends the process when the run ends.
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
	if a.plan.fault != none && wait(a.plan.faultAt) && a.signal(a.plan.fault) && a.plan.fault == stop {
		wait(a.plan.stopFor)
		a.noteFault("continue")
		_ = a.cmd.Process.Signal(sigcont)
	}
	select {
	case <-over:
		return
	case <-ctx.Done():
	}
	if sig, ok := signals[term]; ok {
		a.noteFault("end of the run")
		_ = a.cmd.Process.Signal(sig)
		select {
		case <-over:
			return
		case <-clock.System{}.After(grace):
		}
	}
	_ = a.cmd.Process.Kill()
}

// signal inflicts a fault, if there is such a one here and the process is still
// there.
func (a *attempt) signal(f fault) bool {
	sig, ok := signals[f]
	if !ok {
		return false
	}
	a.noteFault(string(f))
	if a.cmd.Process.Signal(sig) != nil {
		return false
	}
	a.run.count(func(c *Counts) { c.fault(f) })
	return true
}

func (a *attempt) noteFault(text string) { a.note(history.Event{Kind: history.Fault, Text: text}) }

// tail is the beginning of what a process says, which is short.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

const maxTail = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b.Write(p[:min(len(p), maxTail-t.b.Len())])
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// last is the last line.
func (t *tail) last() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	return lines[len(lines)-1]
}
