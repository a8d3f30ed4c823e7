//go:build unix

package procgroup

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup/guard"
)

// Group is a running command with all processes of its group. Its methods can be called concurrently.
//
// The group runs only while its allowance holds, a guard watches it, it isn't paused, and the terminal hasn't
// stopped it.
type Group struct {
	cmd  Command
	pgid int // also the leader's pid
	tty  terminal
	// pipeline is set if the command gets the terminal only when it asks for it: see isPipe.
	pipeline bool
	clocks   func() clock.Reading // guard.ReadClocks
	done     chan struct{}
	work     sync.WaitGroup

	status Status // set before done is closed

	mu           sync.Mutex
	allowance    Allowance
	paused       bool                    // by Pause
	stopped      bool                    // by the terminal
	continuing   bool                    // resume is active
	ended        bool                    // the leader has ended
	atTerminal   bool                    // the command had the terminal when the leader ended
	sent         map[syscall.Signal]bool // the signals that we have sent to the group
	due          bool                    // we have stopped the group, or not continued it: it continues as soon as it may run
	clockStepped bool                    // the guard stops the group because of ErrClockStepped
	killed       bool                    // we have killed the group
	begun        bool                    // the starter may execute the command
	refused      bool                    // the last signal failed: we may not signal any process of the group
	seeking      bool                    // findRunaways is active
	over         bool                    // the group is empty: send no signal, because another group can get its id
	others       continuations
	members      guard.Members

	guard     *guardClient // nil while there is no guard
	unguarded error        // ErrUnguarded after unguardedGrace without a guard, else nil
	backstop  backstop
	kept      []uintptr     // the files that each guard keeps open
	changed   chan struct{} // closed at each answer of a guard, and each change of unguarded

	page           *guard.Page // shared with each guard
	pageFile       *os.File
	stopsContinued uint32      // page.Stops before our last SIGCONT: the SIGCONT has ended these stops
	awaited        uint32      // the version of the allowance that the guard must follow before overdue
	overdue        *time.Timer // calls replaceSilent
}

// Allow lets the group run while the allowance holds. If the guard has stopped the group because the
// previous allowance ended, the group continues.
func (g *Group) Allow(a Allowance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allowance = a
	if !g.over {
		g.allowLocked()
	}
	if g.isDue() {
		g.ring() // the answer continues the group
	}
}

// Pause stops the group until Unpause. Until then we have the terminal, so that Ctrl-C reaches us.
func (g *Group) Pause() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused = true
	err := g.signalLocked(unix.SIGSTOP)
	g.page.Pause(true)
	g.ring() // the guard keeps the group stopped from now on
	g.seekRunaways()
	if err == nil {
		g.tty.takeBack(g.pgid)
		g.tty.pause()
	}
	return err
}

// Unpause ends a pause. It returns ErrExpired or ErrClockStepped if the allowance doesn't hold, and ErrUnguarded
// if no guard has answered. After such an error the group continues as soon as it may run.
func (g *Group) Unpause() error {
	g.mu.Lock()
	g.paused, g.due = false, true
	g.page.Pause(false)
	g.mu.Unlock()
	if err := g.awaitAnswer(time.After(answerTimeout)); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.continueLocked()
}

// continueLocked continues the group if it may run.
func (g *Group) continueLocked() error {
	if g.over {
		return os.ErrProcessDone
	}
	if g.paused || g.stopped {
		return nil
	}
	if err := g.mayRun(); err != nil {
		g.due = true
		return err
	}
	g.stopsContinued = g.page.Stops() // before the SIGCONT: it doesn't end a later stop
	if !g.ended && !g.pipeline {
		g.tty.lend(g.pgid)
	}
	g.page.Continue()
	g.others.own = true
	err := g.signalLocked(unix.SIGCONT)
	if err != nil && err != unix.EPERM { // EPERM: we couldn't have stopped its processes either
		return err
	}
	// We could have been stopped for hours since the last check, and so have continued the group too late.
	if err := g.mayRun(); err != nil {
		g.due = true
		_ = g.signalLocked(unix.SIGSTOP)
		return err
	}
	g.due, g.others.seen, g.others.reported = false, 0, 0
	return nil
}

// mayRun returns why the group may not run, or nil.
func (g *Group) mayRun() error {
	if g.unguarded != nil && g.cmd.Expiry != Nothing {
		return g.unguarded
	}
	return check(g.allowance, g.cmd.Expiry, g.clocks())
}

// Kill kills the group. A process of another user can survive: see Command.RunsOn.
func (g *Group) Kill() error { return g.Signal(unix.SIGKILL) }

// Signal sends a signal to the whole group. It returns os.ErrProcessDone if the group is empty. A stopped
// group handles SIGKILL at once, and other signals when it continues. SIGCONT ends a stop by the terminal,
// but no pause.
func (g *Group) Signal(sig os.Signal) error {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal %v: %w", sig, errors.ErrUnsupported)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s == unix.SIGCONT {
		g.unsuspendLocked()
		return g.continueLocked()
	}
	g.sent[s] = true
	err := g.signalLocked(s)
	if s == unix.SIGKILL {
		g.killed = true
		g.seekRunaways()
	}
	return err
}

func (g *Group) signalLocked(sig syscall.Signal) error {
	if g.over || g.pgid <= 1 { // kill(2): 0 is our own group, and -1 every process
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

// Status returns how the command itself ended. It is valid once Done is closed.
func (g *Group) Status() Status { return g.status }

// Typed returns the signal that ended the command if a person typed it (Ctrl-C, Ctrl-\), else 0. We don't
// receive that signal: the terminal sends it only to the command's group. Typed is valid once Done is
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

// Close kills the remaining processes of the group. It returns when the group is empty, and the guard,
// the backstop and our goroutines have ended.
func (g *Group) Close() error {
	// After a normal end there is nothing to kill: Done is closed when the group is empty, and Kill then sends
	// no signal. Only a caller that gives up, such as Start, still has a process to kill.
	err := g.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-g.done
	g.work.Wait()
	return err
}

// reportInterrupted calls Command.Interrupted if the command has begun. Before that, Start returns the reason.
func (g *Group) reportInterrupted(why error, over bool) {
	g.mu.Lock()
	begun := g.begun
	g.mu.Unlock()
	if begun && g.cmd.Interrupted != nil {
		g.cmd.Interrupted(why, over)
	}
}

func (g *Group) reportTrouble(err error) {
	if err != nil && !errors.Is(err, os.ErrProcessDone) && g.cmd.Trouble != nil {
		g.cmd.Trouble(err)
	}
}
