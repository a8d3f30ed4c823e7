//go:build unix

package child

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Prepared is a command that can be started at once: its starter waits at the gate,
// and its guard is there.
type Prepared struct {
	g       *Group
	begin   chan beginning
	started chan error
}

// beginning is what a command needs to begin.
type beginning struct {
	env       []string
	allowance Allowance
}

// Prepare gets a command ready, which takes some milliseconds that its caller may use.
// It fails with ErrNotFound or ErrNotExecutable if the command is to blame. Either
// Start or Close must be called, once.
func Prepare(cmd Command) (*Prepared, error) {
	path, err := LookPath(cmd.Args)
	if err != nil {
		return nil, err
	}
	g := &Group{cmd: cmd, clocks: ReadClocks, done: make(chan struct{}), news: make(chan struct{}), sent: map[syscall.Signal]bool{}}
	g.overdue = time.AfterFunc(patience, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.replaceGuard()
	})
	g.overdue.Stop()
	p := &Prepared{g, make(chan beginning), make(chan error, 1)}
	g.work.Go(func() { g.run(path, p.begin, p.started) })
	return p, nil
}

// Start begins the command, in this environment, with its first allowance: see
// Group.Allow. It fails as Prepare does, with ErrExpired or ErrParted if the allowance
// doesn't hold, and with ErrUnguarded if there is no guard; then nothing was begun.
func (p *Prepared) Start(env []string, a Allowance) (*Group, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.begin <- beginning{env, a}
	var err error
	select {
	case err = <-p.started:
	case err = <-p.g.ends(ctx, a): // the guard has stopped it before it was executed
	}
	if err != nil {
		_ = p.g.Close()
		return nil, err
	}
	return p.g, nil
}

// Close ends what was prepared and not started.
func (p *Prepared) Close() {
	close(p.begin)
	p.g.work.Wait()
}

// ends delivers why the first allowance doesn't hold any more.
func (g *Group) ends(ctx context.Context, a Allowance) <-chan error {
	end := make(chan error, 1)
	if g.cmd.Expiry == Nothing {
		return end
	}
	go func() {
		for {
			now := ReadClocks()
			if err := a.judge(g.cmd.Expiry, now); err != nil {
				end <- err
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(beat, a.Until-now.Elapsed)):
			}
		}
	}()
	return end
}

// execError tells a program that can't be executed from a system that can't fork.
func execError(name string, err error) error {
	if err == unix.EAGAIN || err == unix.ENOMEM {
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%s: %w: %w", name, ErrNotExecutable, err)
}
