//go:build unix

package procgroup

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Prepared is a command that can be started at once: its starter and its guard run.
type Prepared struct {
	g       *Group
	begin   chan startRequest
	started chan error
}

// startRequest holds the arguments of Start.
type startRequest struct {
	env       []string
	allowance Allowance
}

// Prepare begins to get a command ready, which takes some milliseconds in the background.
// It fails with ErrNotFound or ErrNotExecutable if the command is to blame. The caller must
// call either Start or Close, once.
func Prepare(cmd Command) (*Prepared, error) {
	path, err := LookPath(cmd.Args)
	if err != nil {
		return nil, err
	}
	g := &Group{cmd: cmd, clocks: ReadClocks, done: make(chan struct{}), changed: make(chan struct{}), sent: map[syscall.Signal]bool{}}
	g.overdue = time.AfterFunc(answerTimeout, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.replaceGuard()
	})
	g.overdue.Stop()
	p := &Prepared{g, make(chan startRequest), make(chan error, 1)}
	g.work.Go(func() { g.run(path, p.begin, p.started) })
	return p, nil
}

// Start starts the command, in this environment, with its first allowance: see Group.Allow.
// It fails as Prepare does, with ErrExpired or ErrParted if the allowance doesn't hold, and
// with ErrUnguarded if there is no guard. After an error nothing of the command has run.
func (p *Prepared) Start(env []string, a Allowance) (*Group, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.begin <- startRequest{env, a}
	var err error
	select {
	case err = <-p.started:
	case err = <-p.g.allowanceEnd(ctx, a): // the guard stopped it before it was executed
	}
	if err != nil {
		_ = p.g.Close()
		return nil, err
	}
	return p.g, nil
}

// Close ends the starter and the guard of a command that is not to be started.
func (p *Prepared) Close() {
	close(p.begin)
	p.g.work.Wait()
}

// allowanceEnd sends ErrExpired or ErrParted once the first allowance doesn't hold any more.
func (g *Group) allowanceEnd(ctx context.Context, a Allowance) <-chan error {
	end := make(chan error, 1)
	if g.cmd.Expiry == Nothing {
		return end
	}
	go func() {
		for {
			now := ReadClocks()
			if err := a.check(g.cmd.Expiry, now); err != nil {
				end <- err
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(clockInterval, a.Until-now.Elapsed)):
			}
		}
	}()
	return end
}

// execError is ErrNotExecutable, unless the system was short of processes or memory.
func execError(name string, err error) error {
	if err == unix.EAGAIN || err == unix.ENOMEM {
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%s: %w: %w", name, ErrNotExecutable, err)
}
