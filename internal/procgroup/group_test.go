//go:build linux

package procgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/child"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup/guard"
	"github.com/repolock/repolock/internal/procgroup/starter"
	"github.com/repolock/repolock/internal/test/assert"
)

// TestStatus: the status has the exit code of the command, or the signal that killed it.
func TestStatus(t *testing.T) {
	for script, want := range map[string]string{
		"exit 0": "exit status 0, 0", "exit 7": "exit status 7, 7",
		"kill -9 $$": "killed by signal 9 (killed), 137", "kill -TERM $$": "killed by signal 15 (terminated), 143",
	} {
		g, err := begin(Command{Args: []string{"sh", "-c", script}}, time.Minute)
		assert.OK(t, err)
		ends(t, g)
		assert.Equal(t, fmt.Sprintf("%v, %d", g.Status(), g.Status().ExitCode()), want, script)
	}
}

// TestStartErrors: each reason why a command can't be started has its own class.
func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		assert.OK(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	for _, test := range []struct {
		command string
		want    error
	}{
		{"", ErrNotFound},
		{"no-such-command", ErrNotFound},
		{"/no/such/command", ErrNotFound},
		{file("plain", "#!/bin/sh\n", 0o600), ErrNotExecutable},
		{dir, ErrNotExecutable},
		{file("garbage", "garbage", 0o700), ErrNotExecutable},
		{file("interpreter", "#!/no/such/interpreter\n", 0o700), ErrNotExecutable},
	} {
		_, err := begin(Command{Args: []string{test.command}}, time.Minute)
		assert.Says(t, err, test.want, "", "%q", test.command)
	}
	assert.Is(t, assert.Err(begin(Command{}, time.Minute)), ErrNotFound)
	parted := Allow(elapsed() + time.Minute)
	parted.Seen.Wall += 3 * time.Second
	for want, a := range map[error]Allowance{ErrExpired: Allow(elapsed()), ErrClockStepped: parted} {
		assert.Is(t, assert.Err(prepared(t, "true").Start(os.Environ(), always(a))), want)
	}
	defer func(real func() string) { guardProgram = real }(guardProgram)
	guardProgram = func() string { return noProgram }
	_, err := begin(Command{Args: []string{"sh"}}, time.Minute)
	assert.Says(t, err, ErrNoExecutable, noProgram+": no such file or directory")
}

// TestDiesAtItsStart: the command doesn't run if its starter or its guard ends at its start, as a Go program
// does that gets no memory.
func TestDiesAtItsStart(t *testing.T) {
	exe, err := os.Executable()
	assert.OK(t, err)
	defer func(real func() string) { guardProgram = real }(guardProgram)
	for name, c := range map[string]struct {
		guard, others string // what the shell does before it executes our program
		want          string
		class         error
	}{
		"starter": {":", "ulimit -v 100000", "touch can't be started: its starter ended too early: exit status ", errStarter},
		"guard":   {"ulimit -v 100000", ":", "no guard watches the command: it ends without an answer", ErrUnguarded},
	} {
		dir := t.TempDir()
		script := fmt.Sprintf("#!/bin/sh\ncase $1 in %s) %s;; *) %s;; esac\nexec %q \"$@\"\n", guard.Argument, c.guard, c.others, exe)
		program, ran := filepath.Join(dir, "program"), filepath.Join(dir, "ran")
		assert.OK(t, os.WriteFile(program, []byte(script), 0o700))
		guardProgram = func() string { return program }
		for expiry := range Nothing + 1 {
			cmd := Command{Args: []string{"touch", ran}, Expiry: expiry}
			cmd.Interrupted = func(why error, over bool) { t.Errorf("%s: interrupted %v %t", name, why, over) }
			_, err = begin(cmd, time.Minute)
			assert.Says(t, err, c.class, c.want, "%s", name)
		}
		_, err = os.Stat(ran)
		assert.Is(t, err, os.ErrNotExist, "%s: the command has run", name)
	}
}

// TestSlowStart: the start of a command takes longer than an allowance lasts. The command runs if a new allowance
// holds, whether the guard's answer is late or the starter.
func TestSlowStart(t *testing.T) {
	t.Run("the guard's answer", func(t *testing.T) {
		p := prepared(t, "true")
		var late, asked atomic.Int64
		clocks := p.g.clocks
		p.g.clocks = func() clock.Reading {
			now := clocks()
			now.Elapsed += time.Duration(late.Load())
			now.Wall += time.Duration(late.Load())
			return now
		}
		third := make(chan struct{})
		g, err := p.Start(os.Environ(), func() Allowance {
			now := p.g.clocks()
			switch asked.Add(1) {
			case 1: // its guard is late
				late.Add(int64(2 * time.Second))
			case 2: // the other of the two that ask
				select {
				case <-third:
				case <-p.g.done:
				}
			case 3:
				close(third)
			}
			return Allowance{Until: now.Elapsed + time.Second, Seen: now}
		})
		assert.OK(t, err)
		ends(t, g)
		assert.Equal(t, g.Status(), Status{})
		assert.OK(t, g.Close())
	})
	t.Run("the starter", func(t *testing.T) {
		exe, err := os.Executable()
		assert.OK(t, err)
		defer func(real func() string) { guardProgram = real }(guardProgram)
		gate, program := fifo(t), filepath.Join(t.TempDir(), "program")
		script := fmt.Sprintf("#!/bin/sh\ncase $1 in %s) ;; *) read x <%q;; esac\nexec %q \"$@\"\n", guard.Argument, gate, exe)
		assert.OK(t, os.WriteFile(program, []byte(script), 0o700))
		guardProgram = func() string { return program }
		asked := 0
		var mu sync.Mutex
		g, err := prepared(t, "true").Start(os.Environ(), func() Allowance {
			mu.Lock()
			defer mu.Unlock()
			if asked++; asked == 5 {
				go func() { _ = os.WriteFile(gate, []byte("go\n"), 0o600) }()
			}
			return Allow(elapsed() + time.Second)
		})
		assert.OK(t, err)
		ends(t, g)
		assert.OK(t, g.Close())
	})
}

// TestNoPage: the command doesn't run without a page for its guard. Without a file in memory the page is in the
// temporary directory, and leaves nothing there.
func TestNoPage(t *testing.T) {
	args := append([]string{"-c", `ulimit -f 0; exec "$@"`, "sh"}, self("parent", "--", "true")...)
	out, err := exec.Command("sh", args...).CombinedOutput()
	assert.That(t, err != nil && string(out) == "failed true can't be started: write lock-guard: file too large\n", "%v, %s", err, out)

	defer func(real func() (*os.File, error)) { memoryFile = real }(memoryFile)
	memoryFile = func() (*os.File, error) { return nil, os.ErrInvalid }
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	g, err := begin(Command{Args: []string{"true"}}, time.Minute)
	assert.OK(t, err)
	ends(t, g)
	left, err := os.ReadDir(dir)
	assert.That(t, err == nil && len(left) == 0, "%v, %v", left, err)
	t.Setenv("TMPDIR", "/nonexistent")
	_, err = begin(Command{Args: []string{"true"}}, time.Minute)
	assert.Is(t, err, os.ErrNotExist)
}

// TestNoLeaks: goroutines, files and children end with the group.
func TestNoLeaks(t *testing.T) {
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		assert.OK(t, err)
		return len(names)
	}
	connection, other, err := os.Pipe()
	assert.OK(t, err)
	defer connection.Close()
	defer other.Close()
	before := 0
	for i := range 3 {
		g, err := begin(Command{Args: []string{"sleep", "1000"}}, time.Minute, connection)
		assert.OK(t, err)
		guard := guardPid(g)
		assert.OK(t, g.Close())
		for _, pid := range []int{guard, g.backstop.pid, g.pgid} {
			assert.Is(t, assert.Err(unix.Wait4(pid, nil, unix.WNOHANG, nil)), unix.ECHILD, "process %d is left", pid)
		}
		assert.Equal(t, g.Status().Signal, unix.SIGKILL)
		assert.Is(t, g.Signal(unix.SIGTERM), os.ErrProcessDone)
		assert.Is(t, g.Unpause(), os.ErrProcessDone)
		assert.Is(t, assert.Err(begin(Command{Args: []string{"/dev/null"}}, time.Minute)), ErrNotExecutable)
		prepared(t, "sleep", "1000").Close()
		if i == 0 {
			before = count()
		}
	}
	after := count()
	assert.That(t, after <= before, "%d open files, then %d", before, after)
	assert.That(t, len(owned.PIDs) == 0, "still waits for %v", owned.PIDs)
	goleak.VerifyNone(t, goleak.IgnoreTopFunction("os/signal.loop"), goleak.IgnoreTopFunction("os/signal.signal_recv"))
}

// TestPrepare: a prepared command doesn't run before Start, whose environment it gets.
func TestPrepare(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "environment"))
	assert.OK(t, err)
	defer out.Close()
	p, err := Prepare(Command{Args: []string{"cat", "/proc/self/environ"}, Stdout: out})
	assert.OK(t, err)
	time.Sleep(100 * time.Millisecond)
	info, err := out.Stat()
	assert.That(t, err == nil && info.Size() == 0, "it has run before it was started (%v)", err)
	env := []string{"NONE=", "TWO=a\nb = c", "LONG=" + strings.Repeat("x", 100_000)} // more than a pipe holds
	g, err := p.Start(env, always(Allow(elapsed()+time.Minute)))
	assert.OK(t, err)
	ends(t, g)
	got, err := os.ReadFile(out.Name())
	assert.OK(t, err)
	assert.That(t, string(got) == strings.Join(env, "\x00")+"\x00", "its environment is %.200q, want %.200q", got, env)
}

// TestMessage: the starter doesn't understand an incomplete message.
func TestMessage(t *testing.T) {
	path, args, env := "/bin/x", []string{"x", "", "a\x00b", strings.Repeat("y", 100_000)}, []string{"A=1", "B="}
	text := string(message(path, args, env))
	p, a, e, ok := starter.Decode(text)
	assert.That(t, ok && p == path && slices.Equal(a, args) && slices.Equal(e, env), "%q %.50q %q %v", p, a, e, ok)
	for n := range 200 {
		_, _, _, ok := starter.Decode(text[:n])
		assert.That(t, !ok, "%d bytes of %d are understood", n, len(text))
	}
	for what, text := range map[string]string{"all but the last byte": text[:len(text)-1], "a byte more": text + "\x00"} {
		_, _, _, ok := starter.Decode(text)
		assert.That(t, !ok, "%s is understood", what)
	}
}

// TestSignalState: the command starts with default dispositions and an empty mask. Signals that were ignored
// when we were started stay ignored, unless Go's runtime handles them; env(1) can ignore those.
func TestSignalState(t *testing.T) {
	const kept = 1<<(unix.SIGHUP-1) | 1<<(unix.SIGINT-1) | 1<<(unix.SIGTSTP-1) | 1<<(unix.SIGTTIN-1) | 1<<(unix.SIGTTOU-1)
	const more = 1<<(unix.SIGPIPE-1) | 1<<(unix.SIGTERM-1)
	ignoring := []string{"sh", "-c", `trap "" HUP INT TSTP TTIN TTOU PIPE TERM QUIT USR1 USR2; exec "$@"`, "sh"}
	for _, test := range []struct {
		wrapper, inner []string
		ignored        uint64
	}{
		{ignoring, nil, kept},
		{ignoring, []string{"env", "--ignore-signal=PIPE,TERM"}, kept | more},
		{[]string{"env", "--block-signal=USR1,TERM"}, nil, 0},
	} {
		command := append(test.inner, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
		p := start(t, test.wrapper, self("parent", append([]string{"--"}, command...)...))
		p.want("done exit status 0")
		p.want("SigBlk:\t0000000000000000")
		line, _ := p.line("SigIgn:")
		ignored, err := strconv.ParseUint(strings.TrimPrefix(line, "SigIgn:\t"), 16, 64)
		// Signals from 32 on are the C library's, which a race detector links in.
		assert.That(t, err == nil && ignored&(1<<31-1) == test.ignored,
			"%q %q: %s, want %x; %v", test.wrapper, test.inner, line, test.ignored, err)
	}
}

// TestForwardsSignals: Signals delivers each signal that a caller must pass on, and Signal sends it.
func TestForwardsSignals(t *testing.T) {
	script := `for s in INT TERM HUP QUIT USR1 USR2 WINCH; do trap "echo caught SIG$s" $s; done
		echo ready; exec 3<>"$0"; while :; do read x <&3; done`
	p := start(t, self("parent", "--", "sh", "-c", script, fifo(t)))
	p.want("ready")
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH} {
		_ = p.cmd.Process.Signal(sig)
		p.want("caught " + unix.SignalName(sig))
	}
}

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	assert.OK(t, unix.Mkfifo(path, 0o600))
	return path
}

// TestPause: a paused group is stopped until Unpause. Neither SIGCONT nor Allow continues it. The same is
// true of a background process whose leader has ended.
func TestPause(t *testing.T) {
	for script, want := range map[string]Status{`exec "$@"`: {Signal: unix.SIGKILL}, `"$@" & exit 3`: {Code: 3}} {
		l := run(t, Stop, "sh", "-c", script, "sh")
		if want.Code > 0 {
			l.want(t, "waiting 1")
		}
		for range 2 {
			assert.OK(t, l.Pause())
			assert.OK(t, l.Signal(unix.SIGCONT))
			l.mu.Lock()
			assert.That(t, l.paused, "SIGCONT has ended the pause: only the guard stops the group again")
			l.mu.Unlock()
			l.allow(time.Minute)
			assert.OK(t, l.awaitAnswer(nil))
			l.k.quiet()
			assert.OK(t, l.Unpause())
			l.k.runs()
			assert.OK(t, l.Unpause())
			l.k.runs()
		}
		assert.OK(t, l.Kill())
		ends(t, l.Group)
		assert.Equal(t, l.Status(), want)
		assert.Equal(t, running(l.pgid), 0, "processes that run")
	}
}

// TestUnpauseTooLate: a group whose allowance is over, or whose wall clock was stepped, continues after the next
// Allow, but not by Unpause or SIGCONT. After a step, it isn't killed.
func TestUnpauseTooLate(t *testing.T) {
	for _, expiry := range []Expiry{Stop, Kill} {
		l := run(t, expiry)
		_ = l.Pause()
		expired, parted := Allow(0), Allow(elapsed()+time.Minute)
		parted.Seen.Wall += time.Hour
		for want, a := range map[error]Allowance{ErrExpired: expired, ErrClockStepped: parted} {
			if want == ErrExpired && expiry == Kill {
				continue // the guard kills it
			}
			l.Allow(a)
			assert.Is(t, l.Unpause(), want)
			assert.Is(t, l.Signal(unix.SIGCONT), want)
			l.k.quiet()
			l.allow(time.Minute)
			l.k.runs()
		}
		for _, over := range []bool{false, true} {
			l.want(t, fmt.Sprint("interrupted ", ErrClockStepped, " ", over))
		}
		l.Allow(parted)
		l.k.quiet()
		l.loseGuard(t)
		l.allow(time.Minute)
		l.k.runs()
	}
}

// TestThreadsComeAndGo: the command isn't killed when other threads end, but when we end.
func TestThreadsComeAndGo(t *testing.T) {
	k := newTicker(t)
	p := start(t, self("parent", "-apart", "-churn", "200ms", "--"), k.args())
	p.want("churned")
	k.runs()
	// While the guard is stopped, only that signal ends the command.
	guard := p.guard(0)
	_ = unix.Kill(guard, unix.SIGSTOP)
	defer unix.Kill(guard, unix.SIGKILL)
	p.end(unix.SIGKILL)
	eventually(t, "the end", func() bool { return running(p.pgid()) == 0 })
}

// TestMemberOfAnotherParent: a process whose parent has left the group ends, and its parent doesn't reap it.
// The group is empty then.
func TestMemberOfAnotherParent(t *testing.T) {
	script := `(cat "$0" & exec setsid sh -c 'echo $$ >"$0"; exec sleep 1000' "$1") & read pid <"$1"; echo $pid`
	gate, waiting := fifo(t), make(events, 1)
	out, err := os.Create(filepath.Join(t.TempDir(), "pid"))
	assert.OK(t, err)
	g, err := begin(Command{
		Args: []string{"sh", "-c", script, gate, fifo(t)}, Stdout: out, Waiting: func(n int) { waiting.say("%d", n) },
	}, time.Minute)
	assert.OK(t, err)
	waiting.want(t, "1")
	assert.OK(t, os.WriteFile(gate, nil, 0o600))
	ends(t, g)
	assert.Equal(t, running(g.pgid), 0, "processes that run")
	text, err := os.ReadFile(out.Name())
	assert.OK(t, err)
	parent, err := strconv.Atoi(strings.TrimSpace(string(text)))
	assert.That(t, err == nil && exists(parent), "the parent %d has ended (%v)", parent, err)
	_ = unix.Kill(parent, unix.SIGKILL)
}

// unshared returns a command that runs another one in new namespaces. An ordinary user needs a new user
// namespace for that.
func unshared(t *testing.T, namespaces ...string) []string {
	t.Helper()
	argv := append([]string{"unshare", "--kill-child", "--pid", "--fork"}, namespaces...)
	if os.Geteuid() != 0 {
		argv = append(argv, "--user", "--map-root-user")
	}
	if out, err := exec.Command(argv[0], append(argv[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("this system doesn't allow a process to have namespaces of its own: %v: %s", err, out)
	}
	return argv
}

// TestReapsOrphans: we adopt and reap the command's orphans, as process 1 or as another one, before and after
// the leader's end. The leader's zombie stays until the group is empty.
func TestReapsOrphans(t *testing.T) {
	script := `for i in 1 2 3; do (setsid true &); done
		(read x <"$0"; for i in 1 2 3; do (setsid true &); (true &); done; echo again; sleep 1000) & exit 0`
	for _, one := range []bool{true, false} {
		var wrapper []string
		if one {
			wrapper = unshared(t, "--mount-proc")
		}
		gate := fifo(t)
		p := start(t, wrapper, self("parent", "--", "sh", "-c", script, gate))
		p.want("waiting 1")
		us := p.pid
		zombies := func() (n int) {
			for pid, s := range processes() {
				if one && s.Parent == p.pid {
					us = pid
				}
				if s.Parent == us && s.Ended {
					n++
				}
			}
			return n
		}
		eventually(t, "one zombie", func() bool { return zombies() == 1 })
		assert.OK(t, os.WriteFile(gate, nil, 0o600))
		p.want("again")
		eventually(t, "one zombie", func() bool { return zombies() == 1 })
		_ = unix.Kill(us, unix.SIGTERM)
		p.want("done exit status 0")
	}
}

// TestNoTerminalInANamespace: a process without a terminal has no foreground, even if getpgrp(2) returns 0,
// because its group is from outside of its pid namespace.
func TestNoTerminalInANamespace(t *testing.T) {
	argv := slices.Concat(unshared(t), self("foreground"))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	assert.That(t, err == nil && string(out) == "foreground: false\n", "%v, %s", err, out)
}

// TestWithoutProc: without /proc of this pid namespace processes can't be counted, but the end of the group is
// noticed.
func TestWithoutProc(t *testing.T) {
	k := newTicker(t)
	p := start(t, unshared(t, "--mount"), []string{"sh", "-c", `mount -t tmpfs none /proc && exec "$@"`, "sh"},
		self("parent", "-copied", "--", "sh", "-c", `"$@" & exit 3`, "sh"), k.args())
	p.want("waiting 0")
	k.runs()
	for pid, s := range processes() {
		if s.Parent == p.pid {
			_ = unix.Kill(pid, unix.SIGTERM)
		}
	}
	p.want("done exit status 3")
}

// TestSweepAsksForChildren: all processes of the machine are read only if a process that the command has left
// behind might have children in its group.
func TestSweepAsksForChildren(t *testing.T) {
	adoptOrphans()
	defer leaveOrphans()
	for script, want := range map[string]struct{ members, scans int }{
		"exit": {0, 0}, "sleep 1000 & sleep 1001 & exit": {2, 0}, "setsid sleep 1000 & exit": {0, 2}, "setsid sleep 1000 & sleep 1001 & exit": {1, 0},
		"sleep 0.01 & exit": {0, 0},
	} {
		scans := 0
		defer func(f func()) { listed = f }(listed)
		listed = func() { scans++ }
		pid, err := spawn("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Env: os.Environ(), Sys: &syscall.SysProcAttr{Setpgid: true}})
		assert.OK(t, err)
		l := leader{pid: pid}
		eventually(t, "the leader's end", func() bool { l.poll(); return l.ended })
		// The children of other processes can change while their lists are read. Then the sweep reads /proc.
		eventually(t, script, func() bool { scans = 0; return sweep(&l) == want.members && scans == want.scans })
		_ = unix.Kill(-pid, unix.SIGKILL)
		pids, ok := adopted(children)
		assert.That(t, ok, "the system has no lists of children")
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
			await(pid)
		}
		await(pid)
	}
}

// TestListsThatChange: lists of children count only if two readings in a row are equal.
func TestListsThatChange(t *testing.T) {
	adoptOrphans()
	defer leaveOrphans()
	for _, c := range []struct {
		readings []string // the last one counts for all further ones
		want     []int
		ok       bool
	}{
		{[]string{"7 1001 1002", "7 1002", "7 1002 1003", "7 1002 1003"}, []int{1002, 1003}, true},
		{[]string{"7 ", "7 "}, nil, true},
		{[]string{"1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "7 ", "8 ", "9 ", "10 ", "11 "}, nil, false},
	} {
		n := 0
		pids, ok := adopted(func() ([]string, error) {
			n++
			return []string{c.readings[min(n, len(c.readings))-1]}, nil
		})
		assert.That(t, slices.Equal(pids, c.want) && ok == c.ok, "%q: %v, %t", c.readings, pids, ok)
	}
	_, ok := adopted(func() ([]string, error) { return nil, unix.ENOENT })
	assert.That(t, !ok, "without lists: sure")
}

// TestSweepLooksTwice: after the list of processes was read, a process of the group starts another and ends.
// The list has no process that still runs, but the group isn't empty.
func TestSweepLooksTwice(t *testing.T) {
	leaveOrphans() // or sweep counts our children
	defer adoptOrphans()
	c := exec.Command("sh", "-c", "read line; sleep 1000 & echo $!")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := c.StdinPipe()
	assert.OK(t, err)
	out, err := c.StdoutPipe()
	assert.OK(t, err)
	assert.OK(t, c.Start())
	l := leader{pid: c.Process.Pid, ended: true}
	owned.Lock()
	owned.PIDs[l.pid] = true // or sweep reaps it
	owned.Unlock()
	defer child.Disown(l.pid)
	defer unix.Kill(-l.pid, unix.SIGKILL)

	looks := 0
	defer func(f func()) { listed = f }(listed)
	listed = func() {
		if looks++; looks > 1 {
			return
		}
		_, failed := in.Write([]byte("go\n"))
		_, unread := out.Read(make([]byte, 100)) // it has started the other
		assert.OK(t, errors.Join(failed, unread, c.Wait()))
	}
	n := sweep(&l)
	assert.That(t, n == 1, "%d processes of the group run on, want 1 (%d looks)", n, looks)
}

// TestActive: a process that waits for a disk counts as stopped, unless we may not signal it.
func TestActive(t *testing.T) {
	for _, test := range []struct {
		state        string
		ours, others bool
	}{
		{"R", true, true}, {"S", true, true}, {"D", false, true}, {"I", true, true},
		{"T", false, false}, {"t", false, false}, {"Z", false, false}, {"X", false, false},
	} {
		denied := func(pid int) bool { return pid == 2 }
		assert.Equal(t, active(test.state, 1, denied), test.ours, test.state)
		assert.Equal(t, active(test.state, 2, denied), test.others, "%s, and it can't be signalled", test.state)
	}
}
