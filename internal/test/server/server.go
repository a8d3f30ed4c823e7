// Package server runs programs that serve tests.
package server

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/freeport"
)

// Process is a program that runs. A nil Process doesn't.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a program, and returns once it is ready. An error has the program's output.
func Start(cmd *exec.Cmd, ready func() bool) (*Process, error) {
	p := &Process{cmd, make(chan struct{})}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait()
	}()
	for limit := time.After(assert.Hang); ; {
		select {
		case <-p.ended:
			return nil, fmt.Errorf("%s has ended:\n%s", cmd.Path, &log)
		case <-limit:
			p.End(os.Kill)
			return nil, fmt.Errorf("%s isn't ready after %v:\n%s", cmd.Path, assert.Hang, &log)
		case <-time.After(5 * time.Millisecond):
		}
		if ready() {
			return p, nil
		}
	}
}

// End sends the program a signal, and waits for its end.
func (p *Process) End(sig os.Signal) {
	if p != nil {
		_ = p.cmd.Process.Signal(sig)
		<-p.ended
	}
}

// Pid is the process ID of the program.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Port returns a free port of 127.0.0.1: freeport.Free.
func Port(t testing.TB) int {
	t.Helper()
	port, err := freeport.Free()
	assert.OK(t, err)
	return port
}
