//go:build unix

package procgroup

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// run prepares the command, starts it on request, and supervises it until the group is
// empty. It sends to started nil once the command runs, or the reason why it can't.
func (g *Group) run(path string, begin <-chan startRequest, started chan<- error) {
	// Keep this thread to the end: the kernel ties the death signal to the thread that
	// forked, not to the process, PR_SET_PDEATHSIG(2const).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(g.done)

	g.tty = openTerminal()
	defer g.tty.close()
	adoptOrphans()
	pid, gate, err := g.fork()
	if err != nil {
		if _, wanted := <-begin; wanted {
			started <- fmt.Errorf("%s can't be started: %w", g.cmd.Args[0], err)
		}
		g.finish()
		return
	}
	guard, unguarded := g.startGuard() // while the starter starts
	b, wanted := <-begin
	if !wanted {
		g.discard(pid, gate, guard)
		return
	}

	signals := catchSignals()
	defer signals.stop()
	beforeBegin()
	unguarded = g.putUnder(guard, unguarded, pid, b)
	go func() {
		err := g.begin(gate, path, b.env, unguarded)
		if err != nil {
			_ = g.Kill() // the guard might have stopped it already
		}
		started <- err
	}()

	g.backstop.start(pid)
	l := leader{pid: pid}
	g.supervise(&l, signals)
	// Reap the leader last: its zombie keeps the kernel from giving the id to another
	// group while we can still signal it.
	g.finish()
	g.status = l.reap()
	if g.status.Signal != 0 {
		g.tty.restore()
	}
}

// discard ends a starter whose command is not started, the backstop, and the guard if there is one.
func (g *Group) discard(pid int, gate gate, guard *guardClient) {
	g.backstop.end()
	gate.close()
	_ = unix.Kill(pid, unix.SIGKILL)
	await(pid)
	if guard != nil {
		guard.end()
	}
	leaveOrphans() // the program that we execute instead can have children of its own
}

// putUnder sends the guard its first order for the new group, and starts another guard if
// this one has died. A nil guard comes with its error. An error means that the group has
// no guard.
func (g *Group) putUnder(guard *guardClient, err error, pgid int, b startRequest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pgid, g.allowance = pgid, b.allowance
	if !g.pipeline {
		g.tty.lend(pgid)
	}
	if err == nil && len(b.keep) > 0 {
		guard.end() // it has none of the connections, which are newer
		if err = g.keep(b.keep); err == nil {
			guard, err = g.startGuard()
		}
	}
	if err == nil {
		g.guard = guard
		if err = g.sendOrder(); err != nil { // the guard has died, perhaps hours ago
			g.guard = nil
			guard.end()
			if guard, err = g.startGuard(); err == nil {
				g.guard = guard
				err = g.resendOrder()
			}
		}
	}
	if err == nil {
		g.work.Go(func() { g.keepGuard(guard) })
	}
	return err
}

// supervise follows what happens to the group and returns when it is empty.
func (g *Group) supervise(l *leader, signals jobSignals) {
	left := leftovers{said: g.cmd.Waiting}
	for {
		switch sig := l.poll(); sig {
		case 0:
		case unix.SIGCONT:
			g.continuedByOthers()
		default:
			g.stoppedBy(sig, signals.continued)
		}
		n := sweep(l)
		var timer <-chan time.Time
		if l.ended {
			g.leaderEnded()
			if n == 0 {
				return
			}
			timer = time.After(left.wait(n))
		}
		select {
		case <-signals.children:
		case <-timer:
		case <-signals.continued:
			g.shellContinued()
		case <-signals.stopped:
			g.shellStops(signals.continued)
		}
	}
}

// passedOn are the signals of Signals. The group itself handles SIGTSTP and SIGCONT.
var passedOn = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH}

// jobSignals are the signals to us that are about the group: SIGCHLD, SIGCONT and SIGTSTP.
type jobSignals struct{ children, continued, stopped chan os.Signal }

func catchSignals() jobSignals {
	return jobSignals{notify(unix.SIGCHLD), notify(unix.SIGCONT), notifyStop()}
}

func (s jobSignals) stop() {
	for _, c := range []chan os.Signal{s.children, s.continued, s.stopped} {
		signal.Stop(c)
	}
}

func notify(sig os.Signal) chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, sig)
	return c
}

// beforeBegin is for tests, which stop us here: the lock is held, and no guard watches the
// command yet.
var beforeBegin = func() {}

// begin starts the command, unless err says why there is no guard. The guard has answered by then,
// so it follows its order even if we are killed, and is no guard that ends at its start.
func (g *Group) begin(gate gate, path string, env []string, err error) error {
	defer gate.close()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnguarded, err)
	}
	if err := g.awaitGuard(nil); err == os.ErrProcessDone {
		return g.unstarted()
	} else if err != nil {
		return err
	}
	g.mu.Lock()
	late := g.mayRun()
	g.begun = late == nil
	g.mu.Unlock()
	if late != nil {
		return late
	}
	gate.open(path, g.cmd.Args, env)
	switch err := gate.executed(); err {
	case nil:
		return nil
	case errStarter:
		return g.unstarted()
	default:
		return execError(g.cmd.Args[0], err)
	}
}

// unstarted returns why the starter ended. A starter that was killed is a command that was killed.
func (g *Group) unstarted() error {
	<-g.done
	if s := g.status; s.Signal == 0 {
		return fmt.Errorf("%s can't be started: %w: %v", g.cmd.Args[0], errStarter, s)
	}
	return nil
}

// finish ends the guard and the backstop of an empty group.
func (g *Group) finish() {
	g.mu.Lock()
	g.over = true
	if g.guard != nil {
		g.guard.end()
		g.guard = nil
	}
	g.backstop.end()
	for _, fd := range g.kept {
		_ = unix.Close(int(fd))
	}
	g.kept = nil
	g.overdue.Stop()
	g.wakeLocked()
	g.mu.Unlock()
}

// keep duplicates connections for each guard: their owner can close its own at any time.
func (g *Group) keep(all []syscall.Conn) error {
	for _, c := range all {
		raw, err := c.SyscallConn()
		if err != nil {
			return fmt.Errorf("a lock's connection can't be duplicated: %w", err)
		}
		var fd int
		controlled := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
		if err = cmp.Or(controlled, err); err != nil {
			return fmt.Errorf("a lock's connection can't be duplicated: %w", err)
		}
		g.kept = append(g.kept, uintptr(fd))
	}
	return nil
}

// leaderEnded takes the terminal back, as a shell does when its job has ended.
func (g *Group) leaderEnded() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.ended = true
		g.atTerminal = g.tty.foreground() == g.pgid
		g.tty.takeBack(g.pgid)
	}
}

// fork opens the backstop's pipe and starts the process that becomes the command. In it, signals that Go caught have
// their default action, and ignored ones stay ignored: execve(2).
func (g *Group) fork() (int, gate, error) {
	if err := g.backstop.open(); err != nil {
		return 0, gate{}, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, gate{}, err
	}
	defer null.Close()
	attr := syscall.ProcAttr{Env: os.Environ(), Sys: &syscall.SysProcAttr{Setpgid: true}}
	for _, f := range []*os.File{g.cmd.Stdin, g.cmd.Stdout, g.cmd.Stderr} {
		if f == nil {
			f = null
		}
		attr.Files = append(attr.Files, f.Fd())
	}
	g.pipeline = isPipe(g.cmd.Stdin) || isPipe(g.cmd.Stdout)
	dieWithThread(attr.Sys)
	defer emptySignalMask()()
	defer runtime.KeepAlive(g)
	return spawnStarter(&attr)
}

// isPipe reports whether f can connect us to other commands of the same job. They are in
// our group, might use the terminal as well (less, fzf), and get Ctrl-C with us. So a
// command in a pipeline gets the terminal only once it asks for it.
func isPipe(f *os.File) bool {
	info, err := f.Stat() // of nil: an error
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// leftovers decides how often to look whether the group is empty after its leader's end.
// We adopt most of its processes and get their SIGCHLD, but not of those whose parent has
// left the group and lives on.
type leftovers struct {
	pause time.Duration
	total time.Duration
	said  func(n int)
}

func (f *leftovers) wait(n int) time.Duration {
	f.total += f.pause
	if f.total > 300*time.Millisecond && f.said != nil {
		f.said(max(n, 0))
		f.said = nil
	}
	f.pause = min(max(2*f.pause, 10*time.Millisecond), time.Second)
	return f.pause
}
