//go:build linux

package procgroup

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/states"
)

// TestStopsAtExpiry: we are stopped, and can do nothing. The guard stops the group when its time is
// over, also if another process continues it.
func TestStopsAtExpiry(t *testing.T) {
	k := newTicker(t)
	p := start(t, self("parent", "-then", "300ms", "--"), k.args())
	k.runs()
	_ = p.cmd.Process.Signal(unix.SIGUSR1)
	p.want("allowed")
	_ = p.cmd.Process.Signal(unix.SIGSTOP)
	k.quiet()
	_ = unix.Kill(-p.pgid(), unix.SIGCONT)
	k.quiet()
	_ = p.cmd.Process.Signal(unix.SIGCONT)
	k.quiet()
}

// TestKillsAtExpiry: the guard kills the whole group when its time is over, and not before.
func TestKillsAtExpiry(t *testing.T) {
	l := run(t, Kill, "sh", "-c", `"$@" & wait`, "sh")
	end := elapsed() + 300*time.Millisecond
	l.Allow(Allow(end))
	ends(t, l.Group)
	if early := end - elapsed(); early > 0 || l.Status().Signal != unix.SIGKILL {
		t.Errorf("%v %v before its time was over", l.Status(), early)
	}
	if running(l.pgid) > 0 {
		t.Error("it runs")
	}
}

// TestStoppedWhileStarting: we are stopped before the guard knows of the command. It must not run
// until we go on, and never if its time is over by then, or if we are killed.
func TestStoppedWhileStarting(t *testing.T) {
	for _, c := range []struct {
		expiry string
		then   unix.Signal
	}{{"stop", unix.SIGCONT}, {"kill", unix.SIGCONT}, {"nothing", unix.SIGCONT}, {"stop", unix.SIGKILL}} {
		t.Run(c.expiry+" "+c.then.String(), func(t *testing.T) {
			t.Parallel()
			k := newTicker(t)
			over := elapsed() + 500*time.Millisecond // or a little later
			p := start(t, self("parent", "-halt", "-until", "500ms", "-expiry", c.expiry, "--"), k.args())
			p.want("forked")
			eventually(t, "the parent is stopped", func() bool { return stateOf(p.pid) == "T" })
			time.Sleep(over - elapsed() + 500*time.Millisecond)
			if ticks := k.all(); len(ticks) > 0 {
				t.Errorf("it ran %d times before a guard watched it", len(ticks))
			}
			_ = p.cmd.Process.Signal(c.then)
			switch {
			case c.then == unix.SIGKILL:
				p.end(c.then)
				eventually(t, "the starter's end", func() bool { return len(inSession(p.pid)) == 0 })
			case c.expiry == "nothing":
				p.want("started")
				k.runs()
				return
			default:
				p.want("failed " + ErrExpired.Error())
			}
			if ticks := k.all(); len(ticks) > 0 {
				t.Errorf("it ran %d times after its time", len(ticks))
			}
		})
	}
}

// TestWeAreKilled: the death signal is for the leader only; the guard kills the rest.
func TestWeAreKilled(t *testing.T) {
	k := newTicker(t)
	p := start(t, self("parent", "--", "sh", "-c", `"$@" & (setsid true; sleep 1000) & sleep 1000`, "sh"), k.args())
	k.runs()
	guard := p.guard(0)
	p.end(unix.SIGKILL)
	eventually(t, "the end", func() bool { return running(p.pgid()) == 0 })
	eventually(t, "the guard's end", func() bool { return !exists(guard) })
}

// TestGuardIsKilled: a guard that was killed is replaced, and the next one knows the allowance from
// the start.
func TestGuardIsKilled(t *testing.T) {
	l := run(t, Stop)
	for range 3 {
		l.loseGuard(t)
		must(t, l.Unpause()) // it has answered
	}
	end := elapsed() + 500*time.Millisecond
	l.Allow(Allow(end))
	l.loseGuard(t)
	eventually(t, "a stop", l.k.stopped)
	if early := end - elapsed(); early > 0 {
		t.Errorf("it was stopped %v before its time was over", early)
	}
	l.k.quiet()
	l.allow(time.Minute)
	l.k.runs()
}

// TestGuardDiesBeforeTheStart: a guard that has died before anything was started is replaced.
func TestGuardDiesBeforeTheStart(t *testing.T) {
	p, err := Prepare(Command{Args: []string{"sleep", "1000"}})
	must(t, err)
	guard := 0
	eventually(t, "the guard", func() bool { guard = guardOf(os.Getpid()); return guard != 0 })
	_ = unix.Kill(guard, unix.SIGKILL)
	eventually(t, "its end", func() bool { return !exists(guard) })
	g, err := p.Start(os.Environ(), Allow(elapsed()+time.Minute))
	must(t, err)
	if now := guardPid(g); now == 0 || now == guard {
		t.Errorf("its guard is %d", now)
	}
	must(t, g.Unpause()) // it answers
	must(t, g.Close())
}

// TestGuardIsAlone: neither the terminal, nor pipes, nor process groups reach the guard, and it holds
// none of them up.
func TestGuardIsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inherited")
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY, 0o600) // and no O_CLOEXEC
	must(t, err)
	defer unix.Close(fd)
	l := run(t, Stop)
	guard := guardPid(l.Group)
	answers := func() {
		t.Helper()
		if err := l.Unpause(); err != nil || guardPid(l.Group) != guard {
			t.Errorf("%v, and the guard is %d, not %d", err, guardPid(l.Group), guard)
		}
	}
	answers() // it is up
	files := func(pid int) (all []string) {
		names, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		for _, f := range names {
			file, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, f.Name()))
			all = append(all, file)
		}
		return all
	}
	command, its, ours := files(l.pgid), files(guard), files(os.Getpid())
	pipe := func(file string) bool { return strings.HasPrefix(file, "pipe:") && !slices.Contains(ours, file) }
	if !slices.Contains(command, path) || slices.ContainsFunc(command, pipe) || slices.Contains(its, path) || len(its) == 0 {
		t.Errorf("the command has %q, the guard %q", command, its)
	}
	if sid, err := unix.Getsid(guard); err != nil || sid != guard {
		t.Errorf("its session is %d (%v)", sid, err)
	}
	for name, want := range map[string]string{"fd/1": os.DevNull, "fd/2": os.DevNull, "cwd": "/"} {
		if got, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", guard, name)); err != nil || got != want {
			t.Errorf("%s is %s (%v)", name, got, err)
		}
	}
	for _, sig := range []unix.Signal{1, 2, 3, 10, 12, 13, 15, 20, 21, 22} {
		_ = unix.Kill(guard, sig)
	}
	answers()
}

// TestKeptConnection: the connection that a lock lasts with ends after the last process of the
// group, although we are killed. A guard that was replaced keeps it too.
func TestKeptConnection(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		path := "@" + rand.Text() // an abstract one: a path of 108 characters can't be bound
		server, err := net.Listen("unix", path)
		must(t, err)
		defer server.Close()
		k := newTicker(t)
		p := start(t, self("parent", "-keep", path, "--", "sh", "-c", `"$@" & wait`, "sh"), k.args())
		conn, err := server.Accept()
		must(t, err)
		defer conn.Close()
		k.runs()
		guard := p.guard(0)
		if replaced {
			_ = unix.Kill(guard, unix.SIGKILL)
			guard = p.guard(guard)
			k.runs() // and has its order
		}
		// The kernel kills the leader with us. A guard that is stopped can't kill the
		// other process before we have looked.
		_ = unix.Kill(guard, unix.SIGSTOP)
		eventually(t, "the guard is stopped", func() bool { return states.AllStopped(guard) })
		p.end(unix.SIGKILL)
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err = conn.Read(make([]byte, 1)) // our end has not ended the connection
		fails(t, err, os.ErrDeadlineExceeded)
		_ = conn.SetReadDeadline(time.Time{})
		k.runs()
		must(t, unix.Kill(guard, unix.SIGCONT))
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if n := running(p.pgid()); n > 0 {
			t.Errorf("the connection has ended while %d processes of the group run", n)
		}
	}
}
