package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/procgroup"
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

// onSignals cancels a context at the first signal, so that the clients end and objects are deleted.
// The second one ends the process.
func (e *tortureEnd) onSignals(cancel context.CancelCauseFunc) (stop func()) {
	signals, stop := procgroup.Signals()
	go func() {
		for sig := range signals {
			if session.Ends(sig) {
				e.signalled(sig.(syscall.Signal), cancel)
			}
		}
	}()
	return stop
}

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
	if e.prefix != "" {
		_, _ = e.log.close(false)
		failed = fmt.Errorf("%w: nothing was judged; locks and objects might be left below %s: remove them by hand", failed, e.prefix)
	}
	code := e.fail(failed)
	session.Interrupt(sig, false)
	os.Exit(code)
}
