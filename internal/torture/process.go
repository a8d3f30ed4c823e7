package torture

import (
	"bytes"
	"os/exec"
	"strings"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/judge"
)

// process is a client's process, which acquires the lock, and runs a child under it.
type process struct {
	id     string
	client int
	mode   judge.Mode
	cmd    *exec.Cmd
	in     chan struct{} // receives once the child runs
	events []judge.Event // guarded by run.mu
}

// start starts a process in its own process group. The caller holds mu.
func (r *run) start(p *process) error {
	ownGroup(p.cmd)
	at := clock.System{}.Elapsed()
	if err := p.cmd.Start(); err != nil {
		return err
	}
	r.note(p, judge.Event{Kind: judge.Start, At: at, Client: p.client, Mode: p.mode})
	return nil
}

// note adds an event to the history of a process. If the event has no time, it gets the current one. The caller holds
// mu.
func (r *run) note(p *process, e judge.Event) {
	e.ID = p.id
	if e.At == 0 {
		e.At = clock.System{}.Elapsed()
	}
	p.events = append(p.events, e)
	if r.opts.Log == nil {
		return
	}
	if err := judge.Write(r.opts.Log, e); err != nil {
		r.fail(err)
	}
}

// add is note for a caller that doesn't hold mu.
func (r *run) add(p *process, e judge.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(p, e)
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
