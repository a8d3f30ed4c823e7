package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/torture"
)

// tortureEnd shows how torture ends. On a store that can't be reached that takes a minute.
type tortureEnd struct {
	*console

	mu          sync.Mutex
	doing       string // "" until the end
	interrupted bool
	prefix      string // of the objects; "" until there can be any
	log         evidence
}

// begins notes what the run writes.
func (e *tortureEnd) begins(prefix string, log evidence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.prefix, e.log = prefix, log
}

// ending shows what is done at the end.
func (e *tortureEnd) ending(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doing = what
	e.tell()
}

// over ends the showing.
func (e *tortureEnd) over() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doing = ""
	e.EndWait()
}

func (e *tortureEnd) tell() {
	switch {
	case e.doing == "":
	case e.interrupted:
		e.step("interrupted: " + e.doing + "; Ctrl-C again ends it at once")
	default:
		e.step("ending: " + e.doing)
	}
}

// signalled cancels a context at the first signal, so that the clients end and objects are deleted.
// The second one ends the process.
func (e *tortureEnd) signalled(sig syscall.Signal, cancel context.CancelCauseFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.interrupted {
		e.leave(sig)
	}
	e.interrupted = true
	cancel(session.Signalled(sig))
	e.tell()
}

// leave ends the process, and names what it leaves behind.
func (e *tortureEnd) leave(sig syscall.Signal) {
	e.EndWait()
	failed := session.Signalled(sig)
	if e.log.File != nil {
		_, _ = e.log.close(false)
	}
	if e.prefix != "" {
		failed = fmt.Errorf("%w: nothing was judged; locks and objects might be left below %s: remove them by hand", failed, e.prefix)
	}
	code := e.fail(failed)
	session.Interrupt(sig, false)
	os.Exit(code)
}

// tortureLine shows the progress of torture: in a live line on a terminal, elsewhere in a
// line now and then.
type tortureLine struct {
	*reporter
	start time.Duration
	steps int
}

// sparse is the number of seconds between progress lines when stderr is no terminal.
const sparse = 15

// step is called each second.
func (l *tortureLine) step(c torture.Counts) {
	text := fmt.Sprintf("%v: %d locks (%d shared, %d exclusive), %d held, %d lost, %d resumed, %d killed, %d stopped, %d writes, %d violations",
		(clock.System{}.Elapsed() - l.start).Round(time.Second), c.Acquisitions(), c.Shared, c.Exclusive, c.Held, c.Lost, c.Resumed, c.Killed, c.Stopped, c.Writes, c.Violations)
	if l.live(text) {
		return
	}
	if l.steps++; l.steps%sparse == 0 || l.steps == 1 && l.inLines() {
		l.Say("%s", text)
	}
}

func progressOf(t torture.TrialReport) string {
	var done []string
	for _, f := range t.Faults {
		done = append(done, fmt.Sprintf("%d %s", f.Rounds, f.Fault))
	}
	return fmt.Sprintf("%d locks; rounds: %s", t.Acquisitions(), strings.Join(done, ", "))
}
