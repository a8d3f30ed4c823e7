//go:build unix

package child

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/clock"
)

// Group is a running command with all processes of its group. Its methods may be
// used concurrently.
//
// The group runs while all of this holds: its allowance does, a guard watches it, it isn't
// paused, and the terminal hasn't stopped it.
type Group struct {
	cmd  Command
	pgid int // the leader's process id as well
	tty  terminal
	// pipeline: the command gets the terminal only when it asks for it
	pipeline bool
	clocks   func() clock.Reading // ReadClocks
	done     chan struct{}
	work     sync.WaitGroup

	status Status // once done is closed

	mu         sync.Mutex
	allowance  Allowance
	paused     bool                    // by Pause
	stopped    bool                    // by the terminal
	continuing bool                    // BeforeContinue is being asked
	ended      bool                    // the leader has ended
	atTerminal bool                    // and had the terminal then
	sent       map[syscall.Signal]bool // by us
	due        bool                    // to be continued as soon as the allowance holds
	parted     bool                    // the guard stops it because of ErrParted
	killed     bool                    // by us
	refused    bool                    // we may signal no process of it
	following  bool                    // findRunaways runs
	over       bool                    // nobody is left, and the group's id may soon be another's

	guard         *guard // nil while there is none
	unguarded     bool   // for so long that the group is stopped
	seq, answered uint64 // of orders
	overdue       *time.Timer
	news          chan struct{} // closed at each change of answered, unguarded
}

// Allow lets the group run as long as the allowance holds. If the guard had stopped
// the group because the allowance before didn't, it runs again.
func (g *Group) Allow(a Allowance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allowance = a
	if !g.over {
		_ = g.tell()
	}
}

// Pause stops the group until Unpause. The terminal is ours meanwhile, so that
// Ctrl-C reaches us.
func (g *Group) Pause() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused = true
	err := g.signalLocked(unix.SIGSTOP)
	g.follow()
	if err == nil {
		g.tty.takeBack(g.pgid)
		g.tty.pause()
	}
	return err
}

// Unpause ends a pause; without one it does no harm. It fails with ErrExpired or
// ErrParted if the allowance doesn't hold, and with ErrUnguarded if no guard knows of
// it. The group then goes on when that is over.
func (g *Group) Unpause() error {
	g.mu.Lock()
	g.paused, g.due = false, true
	g.mu.Unlock()
	if err := g.agree(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.continueLocked()
}

// continueLocked continues the group unless there is a reason why not.
func (g *Group) continueLocked() error {
	if g.over {
		return os.ErrProcessDone
	}
	if g.paused || g.stopped {
		return nil
	}
	if err := g.judge(); err != nil {
		g.due = true
		return err
	}
	if !g.ended && !g.pipeline {
		g.tty.lend(g.pgid)
	}
	err := g.signalLocked(unix.SIGCONT)
	if err != nil && err != unix.EPERM { // what can't be signalled wasn't stopped
		return err
	}
	// We could have been stopped for hours between the last look and now.
	if err := g.judge(); err != nil {
		g.due = true
		_ = g.signalLocked(unix.SIGSTOP)
		return err
	}
	g.due = false
	return nil
}

// judge returns why the group may not run, or nil.
func (g *Group) judge() error {
	if g.unguarded && g.cmd.Expiry != Nothing {
		return ErrUnguarded
	}
	return g.allowance.judge(g.cmd.Expiry, g.clocks())
}

// Kill kills the group. A process that runs as another user may survive: see RunsOn.
func (g *Group) Kill() error { return g.Signal(unix.SIGKILL) }

// Signal sends a signal to the whole group, or returns os.ErrProcessDone. A
// stopped group gets it when it is continued, except for SIGKILL. SIGCONT ends a
// stop by the terminal, but no pause.
func (g *Group) Signal(sig os.Signal) error {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal %v: %w", sig, errors.ErrUnsupported)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s == unix.SIGCONT {
		g.stopped = false
		return g.continueLocked()
	}
	g.sent[s] = true
	err := g.signalLocked(s)
	if s == unix.SIGKILL {
		g.killed = true
		g.follow()
	}
	return err
}

func (g *Group) signalLocked(sig syscall.Signal) error {
	if g.over || g.pgid <= 1 { // to kill(2) the "groups" 0 and 1 are others than one would think
		return os.ErrProcessDone
	}
	err := unix.Kill(-g.pgid, sig)
	g.refused = err == unix.EPERM
	if err == unix.ESRCH {
		return os.ErrProcessDone
	}
	return err
}

// Done is closed when the command has ended and its group is empty.
func (g *Group) Done() <-chan struct{} { return g.done }

// Status is how the command itself ended. It is valid once Done is closed.
func (g *Group) Status() Status { return g.status }

// Typed is the signal that has ended the command if the terminal has sent it (Ctrl-C,
// Ctrl-\), which it does to the command's group alone; else 0. It is valid once Done is
// closed.
func (g *Group) Typed() syscall.Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.status.Signal
	if s != unix.SIGINT && s != unix.SIGQUIT || !g.atTerminal || g.sent[s] {
		return 0
	}
	return s
}

// Close kills what is left of the group and waits for the end of everything that
// belongs to it.
func (g *Group) Close() error {
	err := g.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-g.done
	g.work.Wait()
	return err
}

func (g *Group) interrupted(why error, over bool) {
	if g.cmd.Interrupted != nil {
		g.cmd.Interrupted(why, over)
	}
}

func (g *Group) trouble(err error) {
	if err != nil && !errors.Is(err, os.ErrProcessDone) && g.cmd.Trouble != nil {
		g.cmd.Trouble(err)
	}
}
