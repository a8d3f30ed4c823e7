//go:build unix

package procgroup

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// These functions make the command a part of the shell's job. If the command stops, we stop too, and the
// shell shows its prompt. If the shell continues us, we continue the command.

// stoppedBy handles a stop of the leader.
func (g *Group) stoppedBy(sig unix.Signal, continued chan os.Signal) {
	switch sig {
	case unix.SIGTTIN, unix.SIGTTOU:
		// The command asks for the terminal. A shell's fg might have given the terminal to us without a
		// signal: it sends none to a job that runs.
		if g.tty.ours() {
			g.mu.Lock()
			g.pipeline = false
			err := g.continueLocked()
			g.mu.Unlock()
			g.reportTrouble(err)
			return
		}
	case unix.SIGTSTP:
	default:
		return // SIGSTOP: the guard, Pause or another process has sent it
	}
	g.suspend(continued)
}

// unsuspendLocked ends a stop by the terminal, if there is one.
func (g *Group) unsuspendLocked() {
	if g.stopped && g.cmd.Suspended != nil {
		g.cmd.Suspended(true)
	}
	g.stopped = false
}

// shellStops handles a stop signal to us instead of the command: Ctrl-Z sends it if we have the terminal, and
// kill(1) can send it.
func (g *Group) shellStops(continued chan os.Signal) {
	g.mu.Lock()
	silent := g.paused || g.stopped || g.ended // the leader won't report this stop
	_ = g.signalLocked(unix.SIGTSTP)
	g.mu.Unlock()
	if silent {
		g.suspend(continued)
	}
}

// suspend stops our whole group, which is the shell's job. If no shell could continue our group (process
// 1, an orphaned group), the kernel doesn't stop it. Then the command alone is stopped, until another
// process sends SIGCONT.
func (g *Group) suspend(continued chan os.Signal) {
	g.mu.Lock()
	began := !g.stopped
	g.stopped = true
	g.tty.takeBack(g.pgid)
	g.mu.Unlock()
	if began && g.cmd.Suspended != nil {
		g.cmd.Suspended(false)
	}

	restore := defaultStop()
	defer restore()
	owned.Lock() // no guard may be started now: it would be in our group until it has its own
	_ = unix.Kill(0, unix.SIGTSTP)
	owned.Unlock()
	// Another thread might handle the signal a moment later, so wait. After the wait our handler of SIGTSTP is back. If
	// it handles the signal then, it calls shellStops once more.
	select {
	case sig := <-continued:
		select {
		case continued <- sig:
		default:
		}
	case <-time.After(100 * time.Millisecond):
	}
}

// shellContinued handles a SIGCONT to us.
func (g *Group) shellContinued() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopped {
		if !g.paused && !g.ended && !g.pipeline {
			g.tty.lend(g.pgid)
		}
		return
	}
	if g.continuing {
		return
	}
	g.continuing = true
	g.work.Go(func() { g.reportTrouble(g.resume()) }) // BeforeContinue can take long
}

// resume continues the group if BeforeContinue returns true and the guard follows the allowance.
func (g *Group) resume() error {
	ok := g.cmd.BeforeContinue == nil || g.cmd.BeforeContinue(g)
	var err error
	if ok {
		err = g.awaitAnswer(time.After(answerTimeout))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.continuing = false
	switch {
	case ok && err == nil:
		g.unsuspendLocked()
		err = g.continueLocked()
	case ok && errors.Is(err, ErrUnguarded):
		g.unsuspendLocked()
		g.due = true // the next guard's answer continues it
	}
	return err
}
