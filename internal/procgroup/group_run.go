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

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// run prepares the command, starts it when begin receives a request, and supervises it until the group is empty.
// It sends nil to started when the command runs, or else why it can't run.
func (g *Group) run(path string, begin <-chan startRequest, started chan<- error) {
	// The death signal of dieWithThread arrives when the thread that forked ends, so this thread must
	// live to the end: PR_SET_PDEATHSIG(2const).
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
	unguarded = g.attach(guard, unguarded, pid, b)
	go func() {
		err := g.begin(gate, path, b, unguarded)
		if err != nil {
			_ = g.Kill() // if the guard has stopped the starter, it doesn't end by itself
		}
		started <- err
	}()

	g.backstop.start(pid)
	l := leader{pid: pid, page: g.page}
	g.supervise(&l, signals)
	// Reap the leader last. While it is a zombie, the kernel gives its id to no other group, which we
	// would then signal.
	g.finish()
	g.status = l.reap()
	if g.status.Signal != 0 {
		g.tty.restore()
	}
}

// discard ends the starter, the backstop and the guard of a command that is not started.
func (g *Group) discard(pid int, gate gate, guard *guardClient) {
	g.backstop.end()
	gate.close()
	_ = unix.Kill(pid, unix.SIGKILL)
	await(pid)
	if guard != nil {
		guard.end()
	}
	g.pageFile.Close()
	leaveOrphans() // the program that we execute instead could have orphans of its own
}

// attach makes the guard watch the new group, with the first allowance. If guard is nil, err is the reason. attach
// returns an error if the group has no guard.
func (g *Group) attach(guard *guardClient, err error, pgid int, b startRequest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pgid, g.allowance = pgid, b.first
	g.page.Watch(pgid, g.cmd.Expiry)
	if !g.pipeline {
		g.tty.lend(pgid)
	}
	if err == nil && len(b.keep) > 0 {
		guard.end() // it was started without the connections: start another, which inherits them
		if err = g.keep(b.keep); err == nil {
			guard, err = g.startGuard()
		}
	}
	if err == nil {
		g.attachLocked(guard)
		g.work.Go(func() { g.keepGuard(guard) }) // it also replaces a guard that died while we waited for the lock
	}
	return err
}

// supervise handles changes of the group and signals to us. It returns when the group is empty.
func (g *Group) supervise(l *leader, signals jobSignals) {
	left := leftovers{report: g.cmd.Waiting, count: func() int { return members(l) }}
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
			timer = time.After(left.wait())
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

// passedOn are the signals that Signals delivers, for the caller to pass on. The group itself handles SIGTSTP and
// SIGCONT.
var passedOn = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH}

// jobSignals deliver SIGCHLD, SIGCONT and SIGTSTP.
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

// beforeBegin is a hook for tests. It runs when the lock is held, and no guard watches the command yet.
var beforeBegin = func() {}

// begin starts the command once the guard has answered. A guard that has answered follows the allowance even if we
// are killed. If there is no guard, err is the reason.
func (g *Group) begin(gate gate, path string, b startRequest, err error) error {
	defer gate.close()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnguarded, err)
	}
	for late := error(ErrExpired); late != nil; {
		if err := g.awaitAnswer(nil); err == os.ErrProcessDone {
			return g.unstarted()
		} else if err != nil {
			return err
		}
		g.mu.Lock()
		late = g.mayRun()
		g.begun = late == nil
		g.mu.Unlock()
		if late != nil { // on a busy machine an answer can take longer than an allowance lasts
			if _, err := g.extend(b.allow); err != nil {
				return late
			}
		}
	}
	gate.open(path, g.cmd.Args, b.env)
	switch err := gate.executed(); err {
	case nil:
		return nil
	case errStarter:
		return g.unstarted()
	default:
		return execError(g.cmd.Args[0], err)
	}
}

// unstarted returns why the starter ended before it executed the command. It returns nil if a signal killed the
// starter: then the status of the group is the same as if the signal had killed the command.
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
	continued := g.reportContinued() // the guard's last answer can come too late
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
	g.pageFile.Close()
	g.wakeLocked()
	g.mu.Unlock()
	continued()
}

// keep duplicates connections for the guards, because their owner can close its own at any time.
func (g *Group) keep(all []syscall.Conn) error {
	for _, c := range all {
		var fd int
		raw, err := c.SyscallConn()
		if err == nil {
			controlled := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
			err = cmp.Or(controlled, err)
		}
		if err != nil {
			return fmt.Errorf("a lock's connection can't be duplicated: %w", err)
		}
		g.kept = append(g.kept, uintptr(fd))
	}
	return nil
}

// leaderEnded records the leader's end, and takes the terminal back, as a shell does when its job has ended.
func (g *Group) leaderEnded() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.ended = true
		g.atTerminal = g.tty.foreground() == g.pgid
		g.tty.takeBack(g.pgid)
	}
}

// fork opens the page and the backstop's pipe, and starts the starter. In the starter, execve(2) has reset the signals
// that our Go runtime catches to their defaults. Ignored signals stay ignored.
func (g *Group) fork() (int, gate, error) {
	if err := cmp.Or(g.openPage(), g.backstop.open()); err != nil {
		return 0, gate{}, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, gate{}, err
	}
	defer null.Close()
	attr := syscall.ProcAttr{Env: append(os.Environ(), guard.Environment), Sys: &syscall.SysProcAttr{Setpgid: true}}
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

// isPipe reports whether f can connect us to other commands of a pipeline. These are in our group, get Ctrl-C
// with us, and might use the terminal, too (less, fzf). So a command in a pipeline gets the terminal only when
// it asks for it.
func isPipe(f *os.File) bool {
	info, err := f.Stat() // of nil: an error
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// leftovers polls for the processes of the group that run on after its leader's end. Most need no poll: we adopt
// orphans, and get SIGCHLD when they end. But if a process has left the group, and lives, its children in the group
// are no orphans.
type leftovers struct {
	pause  time.Duration // until the next poll
	total  time.Duration // of the pauses so far
	report func(n int)   // Command.Waiting; nil once it was called
	count  func() int    // returns the number of the processes, or 0 if it is unknown
}

// wait returns the time until the next poll.
func (f *leftovers) wait() time.Duration {
	f.total += f.pause
	if f.total > 300*time.Millisecond && f.report != nil {
		f.report(f.count())
		f.report = nil
	}
	f.pause = min(max(2*f.pause, 10*time.Millisecond), time.Second)
	return f.pause
}
