//go:build unix

package procgroup

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// These functions make the command behave as if it were in our group: if it stops, so do
// we, and the shell shows its prompt; if the shell continues us, we continue it.

// stoppedBy handles a stop of the leader.
func (g *Group) stoppedBy(sig unix.Signal, continued chan os.Signal) {
	switch sig {
	case unix.SIGTTIN, unix.SIGTTOU:
		// A shell's fg sends no signal to a job that runs in the background already. So we
		// can have the terminal without knowing, when the command asks for it.
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
		return // SIGSTOP: by the guard, by Pause, or by a process that means only the leader
	}
	g.suspend(continued)
}

// continuedByOthers notes that a stop by the terminal is over.
func (g *Group) continuedByOthers() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unsuspendLocked()
}

// unsuspendLocked notes that a stop by the terminal is over, if there is one.
func (g *Group) unsuspendLocked() {
	if g.stopped && g.cmd.Suspended != nil {
		g.cmd.Suspended(true)
	}
	g.stopped = false
}

// shellStops handles a stop signal to us instead of the command. Ctrl-Z sends it while the
// terminal is ours, and so does kill(1).
func (g *Group) shellStops(continued chan os.Signal) {
	g.mu.Lock()
	still := g.paused || g.stopped || g.ended // the leader has no stop to report
	_ = g.signalLocked(unix.SIGTSTP)
	g.mu.Unlock()
	if still {
		g.suspend(continued)
	}
}

// suspend stops our whole group, which is the shell's job. The kernel does nothing if no
// shell could continue it (process 1, an orphaned group). Then we go on, and the command
// stays stopped until another process sends SIGCONT.
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
	owned.Lock() // a new guard is in our group until it has a session of its own
	_ = unix.Kill(0, unix.SIGTSTP)
	owned.Unlock()
	// Another thread can take the signal a moment later. If it does so after this, the
	// signal comes back to shellStops.
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
	g.work.Go(func() { g.reportTrouble(g.resume()) }) // it can take long
}

// resume continues the group if BeforeContinue and the guard agree.
func (g *Group) resume() error {
	ok := g.cmd.BeforeContinue == nil || g.cmd.BeforeContinue(g)
	var err error
	if ok {
		err = g.awaitAnswer()
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
