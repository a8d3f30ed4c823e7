package procgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Group is a running command.
type Group struct {
	cmd    *exec.Cmd
	done   chan struct{}
	status Status
}

// Foreground returns true: Windows has no background jobs.
func Foreground() bool { return true }

// Prepared is a command that can be started.
type Prepared struct{ cmd *exec.Cmd }

// Prepare finds the program of a command. It fails with ErrNotFound or ErrNotExecutable.
func Prepare(cmd Command) (*Prepared, error) {
	if len(cmd.Args) == 0 {
		return nil, ErrNotFound
	}
	c := exec.Command(cmd.Args[0], cmd.Args[1:]...)
	if c.Err != nil {
		return nil, CommandError(cmd.Args[0], c.Err)
	}
	// A nil *os.File must not become a non-nil interface.
	if cmd.Stdin != nil {
		c.Stdin = cmd.Stdin
	}
	if cmd.Stdout != nil {
		c.Stdout = cmd.Stdout
	}
	if cmd.Stderr != nil {
		c.Stderr = cmd.Stderr
	}
	return &Prepared{c}, nil
}

// Close does nothing.
func (p *Prepared) Close() {}

// CommandError wraps ErrNotFound or ErrNotExecutable around the error of starting a program.
func CommandError(name string, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	return fmt.Errorf("%s: %w: %w", name, ErrNotExecutable, err)
}

// Start starts the command in this environment. It fails as Prepare does. It ignores the connections: if our
// process ends, they close.
func (p *Prepared) Start(env []string, _ func() Allowance, _ ...syscall.Conn) (*Group, error) {
	c := p.cmd
	c.Env = env
	if err := c.Start(); err != nil {
		return nil, CommandError(c.Args[0], err)
	}
	g := &Group{cmd: c, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		_ = c.Wait() // its error is the status
		g.status.Code = c.ProcessState.ExitCode()
	}()
	return g, nil
}

// Allow does nothing: the caller must kill in time.
func (g *Group) Allow(Allowance) {}

// Pause fails: Windows can't stop a process.
func (g *Group) Pause() error { return fmt.Errorf("pause the command: %w", errors.ErrUnsupported) }

// Unpause fails as Pause does.
func (g *Group) Unpause() error { return fmt.Errorf("unpause the command: %w", errors.ErrUnsupported) }

// Kill kills the command's own process.
func (g *Group) Kill() error { return g.cmd.Process.Kill() }

// Signal kills the command for os.Kill. It ignores os.Interrupt, because the console sends Ctrl-C to every
// process.
func (g *Group) Signal(sig os.Signal) error {
	if sig == os.Interrupt {
		return nil
	}
	return g.cmd.Process.Signal(sig)
}

// Done is closed when the command has ended.
func (g *Group) Done() <-chan struct{} { return g.done }

// Status returns how the command ended. It is valid once Done is closed.
func (g *Group) Status() Status { return g.status }

// Typed returns 0: the console sends Ctrl-C to us too.
func (g *Group) Typed() syscall.Signal { return 0 }

// Close kills the command and waits for its end.
func (g *Group) Close() error {
	err := g.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-g.done
	return err
}

var passedOn = []os.Signal{os.Interrupt, syscall.SIGTERM}
