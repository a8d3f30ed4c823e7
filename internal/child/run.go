//go:build unix

package child

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// run is the group's life: it prepares the command, begins it when it is told to, and
// follows what happens to it until the group is empty. started is told whether the
// command runs, or why not.
func (g *Group) run(path string, begin <-chan beginning, started chan<- error) {
	// The kernel ties the death signal to the thread that forked, not to the
	// process: PR_SET_PDEATHSIG(2const). So this thread is ours until the end.
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
	guard, err := startGuard() // while the starter starts
	b, wanted := <-begin
	if !wanted {
		gate.close()
		_ = unix.Kill(pid, unix.SIGKILL)
		await(pid)
		if err == nil {
			guard.end()
		}
		leaveOrphans() // who we become may have children of its own
		return
	}

	children := notify(unix.SIGCHLD)
	defer signal.Stop(children)
	continued := notify(unix.SIGCONT)
	defer signal.Stop(continued)
	stop := notifyStop()
	defer signal.Stop(stop)
	stoppable()
	g.mu.Lock()
	g.pgid, g.allowance = pid, b.allowance
	if !g.pipeline {
		g.tty.lend(pid)
	}
	if err == nil {
		g.guard = guard
		if err = g.tell(); err != nil { // it has died since, which may be hours ago
			g.guard = nil
			guard.end()
			if guard, err = startGuard(); err == nil {
				g.guard = guard
				err = g.repeat()
			}
		}
	}
	if err == nil {
		g.work.Add(1)
		go g.keepGuard(guard)
	}
	g.mu.Unlock()
	go func() {
		err := g.begin(gate, path, b.env, err)
		if err != nil {
			_ = g.Kill() // the guard may have stopped it already
		}
		started <- err
	}()

	l := leader{pid: pid}
	left := leftovers{said: g.cmd.Waiting}
	for {
		switch sig := l.poll(); sig {
		case 0:
		case unix.SIGCONT:
			g.continuedByOthers()
		default:
			g.stoppedBy(sig, continued)
		}
		n := sweep(&l)
		var timer <-chan time.Time
		if l.ended {
			g.leaderEnded()
			if n == 0 {
				break
			}
			timer = time.After(left.wait(n))
		}
		select {
		case <-children:
		case <-timer:
		case <-continued:
			g.shellContinued()
		case <-stop:
			g.shellStops(continued)
		}
	}
	// The leader's zombie keeps the id from being given to another group until
	// nobody can signal it.
	g.finish()
	g.status = l.reap()
	if g.status.Signal != 0 {
		g.tty.restore()
	}
}

// stoppable is for tests, which stop us there: the lock is held, and nobody watches
// the command yet.
var stoppable = func() {}

// begin lets the command begin once there is a guard and its order on the way to it,
// err being what came of that: the guard goes by it whatever becomes of us.
func (g *Group) begin(gate gate, path string, env []string, err error) error {
	defer gate.close()
	g.mu.Lock()
	late := g.judge()
	g.mu.Unlock()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnguarded, err)
	case late != nil:
		return late
	}
	if err := gate.open(path, g.cmd.Args, env); err != nil {
		return fmt.Errorf("%s can't be started: %w", g.cmd.Args[0], err)
	}
	if err := gate.executed(); err != nil {
		return execError(g.cmd.Args[0], err)
	}
	return nil
}

// finish ends a group of which nobody is left.
func (g *Group) finish() {
	g.mu.Lock()
	g.over = true
	if g.guard != nil {
		g.guard.end()
		g.guard = nil
	}
	g.overdue.Stop()
	g.wakeLocked()
	g.mu.Unlock()
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

// fork makes the process that becomes the command. Everything that Go caught is at
// its default in it and what was ignored stays ignored: execve(2).
func (g *Group) fork() (int, gate, error) {
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

// isPipe tells that other commands of the same job may be at the other end. They
// are in our group, may use the terminal as well (less, fzf), and get Ctrl-C with
// us; so a command in a pipeline has the terminal only once it asks for it.
func isPipe(f *os.File) bool {
	if f == nil {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// leftovers decides how often to look whether the group is empty after its
// leader's end: most of its processes are adopted by us and announce their ends,
// but not those whose parent has left the group and lives on.
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

func notify(sig os.Signal) chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, sig)
	return c
}
