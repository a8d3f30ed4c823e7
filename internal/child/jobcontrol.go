//go:build unix

package child

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// This is what a job's processes and the shell would do among themselves if the
// command were in our group: it stops, so do we, and the shell gets its prompt;
// the shell continues us, so we continue it.

// stoppedBy handles a stop of the leader.
func (g *Group) stoppedBy(sig unix.Signal, continued chan os.Signal) {
	switch sig {
	case unix.SIGTTIN, unix.SIGTTOU:
		// A shell's fg doesn't signal a job that runs in the background already:
		// then we have the terminal without knowing, and the command wants it.
		if g.tty.ours() {
			g.mu.Lock()
			g.pipeline = false
			err := g.continueLocked()
			g.mu.Unlock()
			g.trouble(err)
			return
		}
	case unix.SIGTSTP:
	default:
		return // SIGSTOP: by the guard, by Pause, or by somebody who means only it
	}
	g.suspend(continued)
}

// continuedByOthers notes that a stop by the terminal is over.
func (g *Group) continuedByOthers() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = false
}

// shellStops handles a stop signal to us instead of the command, which is sent
// by Ctrl-Z while the terminal is ours, and by kill(1).
func (g *Group) shellStops(continued chan os.Signal) {
	g.mu.Lock()
	still := g.paused || g.stopped || g.ended // the leader has no stop to report
	_ = g.signalLocked(unix.SIGTSTP)
	g.mu.Unlock()
	if still {
		g.suspend(continued)
	}
}

// suspend stops ourselves with our whole group, which is the shell's job. If
// nobody would continue it (process 1, an orphaned group) the kernel does
// nothing, and we go on with a stopped command until somebody sends SIGCONT.
func (g *Group) suspend(continued chan os.Signal) {
	g.mu.Lock()
	g.stopped = true
	g.tty.takeBack(g.pgid)
	g.mu.Unlock()

	restore := defaultStop()
	defer restore()
	owned.Lock() // a new guard is in our group until it has a session of its own
	_ = unix.Kill(0, unix.SIGTSTP)
	owned.Unlock()
	// Another thread may be the one to take the signal, a moment later. If it is
	// taken after this, it comes back to shellStops.
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
	g.work.Go(func() { g.trouble(g.resume()) }) // it may take long
}

// resume asks whether the group may go on, and continues it.
func (g *Group) resume() error {
	ok := g.cmd.BeforeContinue == nil || g.cmd.BeforeContinue(g)
	var err error
	if ok {
		err = g.agree()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.continuing = false
	switch {
	case ok && err == nil:
		g.stopped = false
		err = g.continueLocked()
	case ok && errors.Is(err, ErrUnguarded):
		g.stopped, g.due = false, true // the next guard's answer continues it
	}
	return err
}
