//go:build linux

package procgroup

import (
	"fmt"
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

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup/guard"
	"github.com/repolock/repolock/internal/procstat"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/states"
)

// forever is the longest wait for an event. Only a hang reaches it, however busy the machine is.
const forever = time.Minute

// record is a file with the events that a parentMain has reported, one on each line.
type record struct {
	t    *testing.T
	path string
}

func newRecord(t *testing.T) record { return record{t, filepath.Join(t.TempDir(), "events")} }

// line returns the first event that begins with the prefix, and whether there is one.
func (r record) line(prefix string) (string, bool) {
	text, _ := os.ReadFile(r.path)
	lines := strings.Split(string(text), "\n")
	i := slices.IndexFunc(lines[:len(lines)-1], func(l string) bool { return strings.HasPrefix(l, prefix) })
	if i < 0 {
		return "", false
	}
	return lines[i], true
}

func (r record) has(event string) bool { _, ok := r.line(event); return ok }

func (r record) want(event string) {
	r.t.Helper()
	eventually(r.t, event, func() bool { return r.has(event) })
}

func (r record) pgid() (pgid int) {
	r.t.Helper()
	r.want("started ")
	line, _ := r.line("started ")
	_, err := fmt.Sscanf(line, "started %d", &pgid)
	assert.Need(r.t, err == nil, "%s: %v", line, err)
	return pgid
}

// process is a parentMain without a terminal, whose record is its standard output.
type process struct {
	record
	cmd *exec.Cmd
	pid int
}

func start(t *testing.T, argv ...[]string) *process {
	t.Helper()
	all := slices.Concat(argv...)
	p := &process{record: newRecord(t), cmd: exec.Command(all[0], all[1:]...)}
	out, err := os.OpenFile(p.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	assert.OK(t, err)
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	assert.OK(t, p.cmd.Start())
	p.pid = p.cmd.Process.Pid
	t.Cleanup(func() { p.end(unix.SIGKILL) })
	return p
}

func (p *process) end(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig)
	_ = p.cmd.Wait()
}

// guard waits for a guard of the process whose pid isn't before.
func (p *process) guard(before int) (pid int) {
	p.t.Helper()
	eventually(p.t, "a guard", func() bool { pid = guardOf(p.pid); return pid != 0 && pid != before })
	return pid
}

// guardOf returns the guard of a process, or 0.
func guardOf(pid int) int {
	for child, s := range processes() {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
		if s.Parent == pid && !s.Ended && string(name) == guard.Name+"\n" {
			return child
		}
	}
	return 0
}

func processes() map[int]procstat.Stat {
	all := map[int]procstat.Stat{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, ok := procstat.Read(e.Name()); ok {
			all[pid] = s
		}
	}
	return all
}

// ticker is the file that a tickMain writes.
type ticker struct {
	t    *testing.T
	path string
}

func newTicker(t *testing.T) ticker { return ticker{t, filepath.Join(t.TempDir(), "ticks")} }

func (k ticker) args() []string { return self("tick", k.path) }

func (k ticker) all() (ticks []time.Duration) {
	text, _ := os.ReadFile(k.path)
	lines := strings.Split(string(text), "\n")
	for _, line := range lines[:len(lines)-1] {
		n, err := strconv.ParseInt(line, 10, 64)
		assert.OK(k.t, err)
		ticks = append(ticks, time.Duration(n))
	}
	return ticks
}

// runs waits until the process ticks after this moment.
func (k ticker) runs() {
	k.t.Helper()
	now := elapsed()
	eventually(k.t, "a tick", func() bool {
		ticks := k.all()
		return len(ticks) > 0 && ticks[len(ticks)-1] > now
	})
}

// stopped reports whether each thread of the process is stopped.
func (k ticker) stopped() bool {
	text, _ := os.ReadFile(k.path + ".pid")
	pid, err := strconv.Atoi(string(text))
	return err == nil && states.AllStopped(pid)
}

// quiet waits until the process is stopped, and checks that it stays stopped for a while.
func (k ticker) quiet() {
	k.t.Helper()
	// Look twice: the first list can lack a thread that was just started.
	for range 2 {
		eventually(k.t, "a stop", k.stopped)
	}
	from := elapsed()
	time.Sleep(100 * time.Millisecond)
	for _, tick := range k.all() {
		assert.Need(k.t, tick <= from, "ran %v into the time when it must not", tick-from)
	}
}

// events are the events that a group has reported.
type events chan string

func (e events) say(format string, args ...any) { e <- fmt.Sprintf(format, args...) }

func (e events) want(t *testing.T, event string) {
	t.Helper()
	select {
	case got := <-e:
		assert.Equal(t, got, event)
	case <-time.After(forever):
		t.Fatalf("never: %s", event)
	}
}

// live is a group whose command ticks.
type live struct {
	*Group
	k ticker
	events
}

// run starts a live group. The words of wrapper come before the command.
func run(t *testing.T, expiry Expiry, wrapper ...string) *live {
	t.Helper()
	l := &live{k: newTicker(t), events: make(events, 100)}
	g, err := begin(Command{
		Args: slices.Concat(wrapper, l.k.args()), Expiry: expiry,
		Waiting:     func(n int) { l.say("waiting %d", n) },
		Interrupted: func(why error, over bool) { l.say("interrupted %v %t", why, over) },
		Continued:   func(killed bool) { l.say("continued by another, killed %t", killed) },
	}, time.Minute)
	assert.OK(t, err)
	t.Cleanup(func() { _ = g.Close() })
	l.Group = g
	l.k.runs()
	return l
}

func prepared(t *testing.T, args ...string) *Prepared {
	t.Helper()
	p, err := Prepare(Command{Args: args})
	assert.OK(t, err)
	return p
}

// ends waits for the group's end.
func ends(t *testing.T, g *Group) {
	t.Helper()
	select {
	case <-g.Done():
	case <-time.After(forever):
		t.Fatalf("%d processes of the group run", running(g.pgid))
	}
}

// allow lets the group run for d.
func (l *live) allow(d time.Duration) { l.Allow(Allow(elapsed() + d)) }

// loseGuard kills the guard, and returns when there is another.
func (l *live) loseGuard(t *testing.T) {
	t.Helper()
	old := guardPid(l.Group)
	_ = unix.Kill(old, unix.SIGKILL)
	eventually(t, "another guard", func() bool { now := guardPid(l.Group); return now != 0 && now != old })
}

func elapsed() time.Duration { return clock.System{}.Elapsed() }

// eventually waits for an event outside of this process. In a bubble, too, it waits in real time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := elapsed() + forever; !ok(); {
		assert.Need(t, elapsed() <= end, "never: %s", what)
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 5e6}, nil)
	}
}

// running counts the processes of a group that aren't zombies.
func running(pgid int) int { return len(runningMembers(pgid, true, denied)) }

// exists reports whether a process runs. A zombie doesn't: it can be an orphan that we have adopted.
func exists(pid int) bool {
	s, ok := procstat.Read(strconv.Itoa(pid))
	return ok && !s.Ended
}

// inSession returns the processes of a session that run.
func inSession(leader int) (pids []int) {
	for pid, s := range processes() {
		if session, err := unix.Getsid(pid); err == nil && session == leader && !s.Ended {
			pids = append(pids, pid)
		}
	}
	return pids
}

// guardPid returns the pid of a group's guard, or 0 if there is none.
func guardPid(g *Group) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.guard == nil {
		return 0
	}
	return g.guard.pid
}
