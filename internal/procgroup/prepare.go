//go:build unix

package procgroup

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup/guard"
)

// Prepared is a command that can be started at once, because its starter and its guard were already started.
type Prepared struct {
	g       *Group
	begin   chan startRequest
	started chan error
}

// startRequest holds the arguments of Start.
type startRequest struct {
	env   []string
	first Allowance
	allow func() Allowance // returns the next one
	keep  []syscall.Conn
}

// Prepare starts the starter and the guard of a command in the background, which takes some milliseconds. It fails
// with ErrNotFound, ErrNotExecutable or ErrNoExecutable. The caller must call either Start or Close, once.
func Prepare(cmd Command) (*Prepared, error) {
	path, err := LookPath(cmd.Args)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(guardProgram()); err != nil { // no starter and no guard can be started
		return nil, fmt.Errorf("%w: %w", ErrNoExecutable, err)
	}
	g := newGroup(cmd)
	p := &Prepared{g, make(chan startRequest), make(chan error, 1)}
	g.work.Go(func() { g.run(path, p.begin, p.started) })
	return p, nil
}

func newGroup(cmd Command) *Group {
	g := &Group{cmd: cmd, clocks: guard.ReadClocks, done: make(chan struct{}), changed: make(chan struct{}), sent: map[syscall.Signal]bool{}}
	g.overdue = time.AfterFunc(answerTimeout, g.replaceSilent)
	return g
}

// Start starts the command in this environment. allow returns its allowance: see Group.Allow. Start calls allow
// again and again until the command runs, because a busy machine can take longer for that than an allowance lasts.
// The guard keeps the connections open until the group has ended, even if our process is killed. Start fails with
// ErrNotExecutable, with ErrExpired or ErrClockStepped if a new allowance doesn't hold, and with ErrUnguarded if
// there is no guard. If Start fails, the command has not run.
func (p *Prepared) Start(env []string, allow func() Allowance, keep ...syscall.Conn) (*Group, error) {
	p.begin <- startRequest{env, allow(), allow, keep}
	if err := p.await(allow); err != nil {
		_ = p.g.Close()
		return nil, err
	}
	return p.g, nil
}

// await returns when the command runs or can't run. Meanwhile it extends the allowance, because the guard stops the
// starter at its end, perhaps before the starter has executed the command. It fails when a new allowance doesn't hold.
func (p *Prepared) await(allow func() Allowance) error {
	for wait := time.Duration(0); ; {
		select {
		case err := <-p.started:
			return err
		case <-time.After(wait):
		}
		a, err := p.g.extend(allow)
		if err != nil {
			return err
		}
		if wait = clock.Tick; p.g.cmd.Expiry != Nothing {
			wait = min(wait, (a.Until-p.g.clocks().Elapsed)/2)
		}
	}
}

// extend lets the group run for a new allowance. It fails if the new allowance doesn't hold.
func (g *Group) extend(allow func() Allowance) (Allowance, error) {
	a := allow()
	if err := check(a, g.cmd.Expiry, g.clocks()); err != nil {
		return a, err
	}
	g.mu.Lock()
	due := g.pgid != 0 && a != g.allowance // without a pgid, attach hasn't begun
	g.mu.Unlock()
	if due {
		g.Allow(a)
	}
	return a, nil
}

// Close ends the starter and the guard. The command is not started.
func (p *Prepared) Close() {
	close(p.begin)
	p.g.work.Wait()
}

// execError wraps ErrNotExecutable around an error of execve(2), unless the system was short of processes
// or memory.
func execError(name string, err error) error {
	if err == unix.EAGAIN || err == unix.ENOMEM {
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%s: %w: %w", name, ErrNotExecutable, err)
}
