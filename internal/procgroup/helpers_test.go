//go:build linux

package procgroup

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
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
	"github.com/repolock/repolock/internal/procstat"
)

// forever is the longest wait for an event. Only a hang reaches it, however busy the machine is.
const forever = 2 * time.Minute

// parent is a running parentMain.
type parent struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.Writer
	events chan string
	unread []string
	pgid   int
	guard  int
}

// launch runs a program, most of all parentMain, without a terminal.
func launch(t *testing.T, argv []string) *parent {
	t.Helper()
	p := &parent{t: t, cmd: exec.Command(argv[0], argv[1:]...), events: make(chan string, 1000)}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go func() {
		for s := bufio.NewScanner(r); s.Scan(); {
			p.events <- s.Text()
		}
		close(p.events)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		r.Close()
	})
	return p
}

func start(t *testing.T, argv []string) *parent {
	t.Helper()
	p := launch(t, argv)
	line := p.expect("started ")
	if _, err := fmt.Sscanf(line, "started %d %d", &p.pgid, &p.guard); err != nil {
		t.Fatal(line, err)
	}
	return p
}

// expect returns the next line that begins with the prefix, and keeps the others.
func (p *parent) expect(prefix string) string {
	p.t.Helper()
	for i, line := range p.unread {
		if strings.HasPrefix(line, prefix) {
			p.unread = slices.Delete(p.unread, i, i+1)
			return line
		}
	}
	timeout := time.After(forever)
	for {
		select {
		case line, ok := <-p.events:
			if !ok {
				p.t.Fatalf("no %q before the end in %q", prefix, p.unread)
			}
			if strings.HasPrefix(line, prefix) {
				return line
			}
			p.unread = append(p.unread, line)
		case <-timeout:
			p.t.Fatalf("no %q in %q", prefix, p.unread)
		}
	}
}

func (p *parent) want(line string) {
	p.t.Helper()
	word, _, _ := strings.Cut(line, " ")
	if got := p.expect(word); got != line {
		p.t.Fatalf("got %q, want %q", got, line)
	}
}

// kill kills the group.
func (p *parent) kill() { p.order("kill") }

// order sends a command, and waits for no result: the parent can end before.
func (p *parent) order(command string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.stdin, command); err != nil {
		p.t.Fatal(err)
	}
}

// ask sends a command, and returns the number that it results in.
func (p *parent) ask(question string) (n int) {
	p.t.Helper()
	p.order(question)
	word, _, _ := strings.Cut(question, " ")
	if _, err := fmt.Sscanf(p.expect(word+" "), word+" %d", &n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// current waits for a guard and returns its pid, which is never 0: that would be our own group.
func (p *parent) current() (pid int) {
	p.t.Helper()
	eventually(p.t, "a guard", func() bool { pid = p.ask("guard"); return pid != 0 })
	return pid
}

func (p *parent) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// ticker is the file of a tickMain.
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
		if err != nil {
			k.t.Fatal(err)
		}
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

// stopped reports whether the process is stopped, or gone. Each of its threads stops when it is
// scheduled.
func (k ticker) stopped() bool {
	pid, err := os.ReadFile(k.path + ".pid")
	if err != nil {
		return false
	}
	threads, _ := filepath.Glob("/proc/" + string(pid) + "/task/*/stat")
	return !slices.ContainsFunc(threads, func(path string) bool {
		text, err := os.ReadFile(path)
		_, state, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
		return err == nil && !strings.HasPrefix(state, "T") && !strings.HasPrefix(state, "Z")
	})
}

// quiet waits until the process is stopped, and checks that it stays so for a while.
func (k ticker) quiet() {
	k.t.Helper()
	eventually(k.t, "a stop", k.stopped)
	from := elapsed()
	time.Sleep(100 * time.Millisecond)
	for _, tick := range k.all() {
		if tick > from {
			k.t.Fatalf("ran %v into the time when it must not", tick-from)
		}
	}
}

// events are what a group has reported.
type events chan string

func (e events) say(format string, args ...any) { e <- fmt.Sprintf(format, args...) }

func (e events) want(t *testing.T, event string) {
	t.Helper()
	select {
	case got := <-e:
		if got != event {
			t.Errorf("got %q, want %q", got, event)
		}
	case <-time.After(forever):
		t.Fatalf("never: %s", event)
	}
}

// live is a group of this process, whose command ticks.
type live struct {
	*Group
	k ticker
	events
}

// run starts a live group, whose command is run by the words of another one.
func run(t *testing.T, expiry Expiry, wrapper ...string) *live {
	t.Helper()
	l := &live{k: newTicker(t), events: make(events, 100)}
	g, err := begin(Command{
		Args: concat(wrapper, l.k.args()), Expiry: expiry,
		Waiting:     func(n int) { l.say("waiting %d", n) },
		Interrupted: func(why error, over bool) { l.say("interrupted %v %t", why, over) },
	}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	l.Group = g
	l.k.runs()
	return l
}

// allow lets the group run for so long.
func (l *live) allow(d time.Duration) { l.Allow(Allow(elapsed() + d)) }

// loseGuard kills the guard, and returns when there is another.
func (l *live) loseGuard(t *testing.T) {
	t.Helper()
	old := guardPid(l.Group)
	_ = unix.Kill(old, unix.SIGKILL)
	eventually(t, "another guard", func() bool { now := guardPid(l.Group); return now != 0 && now != old })
}

func elapsed() time.Duration { return clock.System{}.Elapsed() }

// eventually waits for something outside of this process. Its time is real in a bubble, too.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := elapsed() + forever; !ok(); {
		if elapsed() > end {
			t.Fatalf("never: %s", what)
		}
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 5e6}, nil)
	}
}

// running counts the processes of a group that aren't zombies.
func running(pgid int) (n int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if s, ok := procstat.Read(e.Name()); ok && !s.Ended && s.Group == pgid {
			n++
		}
	}
	return n
}

func stateOf(pid int) string {
	s, _ := procstat.Read(strconv.Itoa(pid))
	return s.State
}

// exists reports whether a process runs. Our own process can be the one that has to reap it,
// since Prepare makes it adopt orphans.
func exists(pid int) bool {
	s, ok := procstat.Read(strconv.Itoa(pid))
	return ok && !s.Ended
}

// inSession are the processes of a session that run.
func inSession(leader int) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !exists(pid) {
			continue
		}
		if session, err := unix.Getsid(pid); err == nil && session == leader {
			pids = append(pids, pid)
		}
	}
	return pids
}

func concat(parts ...[]string) (all []string) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
