//go:build linux

package procgroup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procgroup/guard"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fdinfo"
	"github.com/repolock/repolock/internal/test/states"
)

// TestStopsAtExpiry: the guard stops the group while we are stopped, even if another process continues it.
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

// TestStoppedWhileStarting: we are stopped before the guard knows the group. The command must not run before
// we are continued, and never if its allowance is over by then, or if we are killed.
func TestStoppedWhileStarting(t *testing.T) {
	for _, c := range []struct {
		expiry string
		then   unix.Signal
	}{{"stop", unix.SIGCONT}, {"kill", unix.SIGCONT}, {"nothing", unix.SIGCONT}, {"stop", unix.SIGKILL}} {
		t.Run(c.expiry+" "+c.then.String(), func(t *testing.T) {
			t.Parallel()
			k := newTicker(t)
			p := start(t, self("parent", "-halt", "-until", "500ms", "-expiry", c.expiry, "--"), k.args())
			p.want("forked")
			over := elapsed() + 500*time.Millisecond // or a little earlier
			eventually(t, "the parent is stopped", func() bool { return states.Of(p.pid) == "T" })
			time.Sleep(over - elapsed() + 500*time.Millisecond)
			assert.Equal(t, k.all(), nil, "it ran before a guard watched it")
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
			assert.Equal(t, k.all(), nil, "it ran after its time")
		})
	}
}

// TestWeAreKilled: if we are killed, the death signal kills the leader, and the guard all others. pgrep and pkill with
// our name don't find the guard.
func TestWeAreKilled(t *testing.T) {
	exe, err := os.ReadFile(self("")[0])
	assert.OK(t, err)
	program := filepath.Join(t.TempDir(), "repolock")
	assert.OK(t, os.WriteFile(program, exe, 0o700))
	k := newTicker(t)
	p := start(t, []string{program, "parent", "--", "sh", "-c", `"$@" & (setsid true; sleep 1000) & sleep 1000`, "sh"}, k.args())
	k.runs()
	guard := p.guard(0)
	for _, tool := range []string{"pgrep", "pgrep -f"} {
		pids := strings.Fields(assert.Output(t, exec.Command("sh", "-c", tool+" repolock")))
		assert.That(t, slices.Contains(pids, strconv.Itoa(p.pid)) && !slices.Contains(pids, strconv.Itoa(guard)), "%s finds %s, we are %d, the guard is %d", tool, pids, p.pid, guard)
	}
	p.end(unix.SIGKILL)
	eventually(t, "the end", func() bool { return running(p.pgid()) == 0 })
	eventually(t, "the guard's end", func() bool { return !exists(guard) })
}

// TestWeAreKilledWithTheGuard: the backstop kills the remaining processes of the group.
func TestWeAreKilledWithTheGuard(t *testing.T) {
	k := newTicker(t)
	p := start(t, self("parent", "--", "sh", "-c", `"$@" & wait`, "sh"), k.args())
	k.runs()
	guard := p.guard(0)
	_ = p.cmd.Process.Signal(unix.SIGSTOP) // or it would replace the guard
	eventually(t, "the parent is stopped", func() bool { return states.AllStopped(p.pid) })
	_ = unix.Kill(guard, unix.SIGKILL)
	k.runs()
	p.end(unix.SIGKILL)
	eventually(t, "the end", func() bool { return running(p.pgid()) == 0 })
}

// TestBackstop: the backstop kills the group at the end of its pipe, unless a guard has killed the group. A
// guard without an allowance hasn't.
func TestBackstop(t *testing.T) {
	for name, c := range map[string]struct {
		guarded bool
		pgid    int // in the guard's page
		want    string
	}{
		"no guard":                 {want: "signal: killed"},
		"a guard had no allowance": {guarded: true, want: "signal: killed"},
		"a guard has killed them":  {guarded: true, pgid: 1 << 23, want: "signal: terminated"}, // no group has this number
	} {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		assert.OK(t, cmd.Start())
		g := newGroup(Command{})
		b := &g.backstop
		assert.OK(t, errors.Join(b.open(), g.openPage()))
		b.start(cmd.Process.Pid)
		if c.guarded {
			p, err := g.startGuard()
			assert.OK(t, err)
			if c.pgid != 0 {
				g.page.Watch(c.pgid, Stop)
				g.page.Allow(Allow(elapsed() + time.Minute))
			}
			p.close() // as if we were killed
			await(p.pid)
			g.pageFile.Close()
		}
		b.kept.Close()
		await(b.pid)
		_ = cmd.Process.Signal(unix.SIGTERM)
		assert.Equal(t, fmt.Sprint(cmd.Wait()), c.want, name)
	}
}

// TestGuardDiesBeforeTheStart: a guard that dies before the command is started is replaced.
func TestGuardDiesBeforeTheStart(t *testing.T) {
	p := prepared(t, "sleep", "1000")
	guard := 0
	eventually(t, "the guard", func() bool { guard = guardOf(os.Getpid()); return guard != 0 })
	_ = unix.Kill(guard, unix.SIGKILL)
	eventually(t, "its end", func() bool { return !exists(guard) })
	g, err := p.Start(os.Environ(), always(Allow(elapsed()+time.Minute)))
	assert.OK(t, err)
	now := guardPid(g)
	assert.That(t, now != 0 && now != guard, "its guard is %d", now)
	assert.OK(t, g.Unpause()) // it answers
	assert.OK(t, g.Close())
}

// TestGuardIsAlone: the guard keeps no inherited file open, has a group of its own, and ignores signals.
func TestGuardIsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inherited")
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY, 0o600) // and no O_CLOEXEC
	assert.OK(t, err)
	defer unix.Close(fd)
	l := run(t, Stop)
	guard := guardPid(l.Group)
	answers := func() {
		t.Helper()
		assert.OK(t, l.Unpause())
		assert.Equal(t, guardPid(l.Group), guard, "the guard")
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
	of := func(file string) bool { // of the group
		return strings.HasPrefix(file, "pipe:") && !slices.Contains(ours, file) || strings.HasPrefix(file, "/memfd:")
	}
	if !slices.Contains(command, path) || slices.ContainsFunc(command, of) || slices.Contains(its, path) || len(its) == 0 {
		t.Errorf("the command has %q, the guard %q", command, its)
	}
	if pgid, err := unix.Getpgid(guard); err != nil || pgid != guard {
		t.Errorf("its group is %d (%v)", pgid, err)
	}
	for name, want := range map[string]string{"fd/1": os.DevNull, "fd/2": os.DevNull, "cwd": "/"} {
		got, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", guard, name))
		assert.That(t, err == nil && got == want, "%s is %s (%v)", name, got, err)
	}
	for _, sig := range []unix.Signal{1, 2, 3, 10, 12, 13, 15, 20, 21, 22} {
		_ = unix.Kill(guard, sig)
	}
	answers()
}

// TestGuardsTimers: the guard waits for the kernel's alarm: a timer that counts suspend, and a timer that is cancelled
// when the wall clock is set. A guard that was started anew does, too.
func TestGuardsTimers(t *testing.T) {
	l := run(t, Stop)
	for range 2 {
		assert.OK(t, l.Unpause()) // it is up
		eventually(t, "its timers", func() bool {
			boot, wall := false, false
			for _, timer := range fdinfo.Timers(t, guardPid(l.Group)) {
				boot = boot || timer.Clock == unix.CLOCK_BOOTTIME && timer.Left > 0 && timer.Left <= guard.LookInterval
				wall = wall || timer.Clock == unix.CLOCK_REALTIME && timer.Flags == unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET
			}
			return boot && wall
		})
		l.loseGuard(t)
	}
}

// TestKeptConnection: if we are killed, a lock's connection ends after the last process of the group. A guard
// that has replaced another one keeps it too.
func TestKeptConnection(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		path := "@" + rand.Text() // an abstract one: a path of 108 characters can't be bound
		server, err := net.Listen("unix", path)
		assert.OK(t, err)
		defer server.Close()
		k := newTicker(t)
		p := start(t, self("parent", "-apart", "-keep", path, "--", "sh", "-c", `"$@" & wait`, "sh"), k.args())
		conn, err := server.Accept()
		assert.OK(t, err)
		defer conn.Close()
		k.runs()
		guard := p.guard(0)
		if replaced {
			_ = unix.Kill(guard, unix.SIGKILL)
			guard = p.guard(guard)
			k.runs() // and has its order
		}
		// The kernel kills the leader with us. While the guard is stopped, the other process runs.
		_ = unix.Kill(guard, unix.SIGSTOP)
		eventually(t, "the guard is stopped", func() bool { return states.AllStopped(guard) })
		p.end(unix.SIGKILL)
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err = conn.Read(make([]byte, 1)) // our end has not ended the connection
		assert.Is(t, err, os.ErrDeadlineExceeded)
		_ = conn.SetReadDeadline(time.Time{})
		k.runs()
		assert.OK(t, unix.Kill(guard, unix.SIGCONT))
		n, err := conn.Read(make([]byte, 1))
		assert.That(t, n == 0 && err != nil, "%d bytes, %v", n, err)
		assert.Equal(t, running(p.pgid()), 0, "the connection has ended while")
	}
}

// TestGuardStartsNoThread: the threads that the guard reserves at its start are enough for all that it does later.
func TestGuardStartsNoThread(t *testing.T) {
	g, err := begin(Command{Args: self("sleep")}, time.Minute)
	assert.OK(t, err)
	defer g.Close()
	threads := func() int {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", g.guard.pid))
		assert.OK(t, err)
		return len(tasks)
	}
	before := threads()
	// Besides, one is init's, and one watches the others.
	assert.That(t, before >= guard.OwnThreads+2, "%d threads", before)
	for range 50 {
		stops := g.page.Stops()
		g.Allow(Allow(elapsed()))
		g.mu.Lock()
		g.ring()
		g.mu.Unlock()
		eventually(t, "the guard has stopped the group", func() bool { return g.page.Stops() != stops })
		g.Allow(Allow(elapsed() + time.Minute))
	}
	assert.Equal(t, threads(), before)
}
