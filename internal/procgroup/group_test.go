//go:build linux

package procgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procstat"
)

func TestStatus(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
		exit int
	}{
		{[]string{"true"}, "exit status 0", 0},
		{[]string{"sh", "-c", "exit 7"}, "exit status 7", 7},
		{[]string{"sh", "-c", "kill -9 $$"}, "killed by signal 9 (killed)", 137},
		{[]string{"sh", "-c", "kill -TERM $$"}, "killed by signal 15 (terminated)", 143},
	} {
		p := start(t, concat(self("parent", "--"), test.args))
		p.want("done " + test.want)
		_ = p.cmd.Wait()
		if code := p.cmd.ProcessState.ExitCode(); code != test.exit {
			t.Errorf("%q: exit code %d, want %d", test.args, code, test.exit)
		}
		if p.guard != 0 && exists(p.guard) { // it can have ended before it was asked for
			t.Errorf("%q: the guard lives on", test.args)
		}
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct {
		args []string
		want error
	}{
		{nil, ErrNotFound},
		{[]string{""}, ErrNotFound},
		{[]string{"no-such-command"}, ErrNotFound},
		{[]string{"/no/such/command"}, ErrNotFound},
		{[]string{file("plain", "#!/bin/sh\n", 0o600)}, ErrNotExecutable},
		{[]string{dir}, ErrNotExecutable},
		{[]string{file("garbage", "garbage", 0o700)}, ErrNotExecutable},
		{[]string{file("interpreter", "#!/no/such/interpreter\n", 0o700)}, ErrNotExecutable},
	} {
		_, err := begin(Command{Args: test.args}, time.Minute)
		if !errors.Is(err, test.want) {
			t.Errorf("%q: %v, want %v", test.args, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: more than a line: %v", test.args, err)
		}
	}
	if _, err := begin(Command{Args: []string{"true"}}, 0); !errors.Is(err, ErrExpired) {
		t.Errorf("no allowance: %v", err)
	}
}

// Everything ends with the group: goroutines, files, children.
func TestNoLeaks(t *testing.T) {
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	before := 0
	for i := range 5 {
		g, err := begin(Command{Args: []string{"sleep", "1000"}}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		guard := guardPid(g)
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		for _, pid := range []int{guard, g.pgid} {
			if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != unix.ECHILD {
				t.Fatalf("process %d is left: %v", pid, err)
			}
		}
		if s := g.Status(); s.Signal != unix.SIGKILL {
			t.Fatal(s)
		}
		if err := g.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Fatalf("signal after the end: %v", err)
		}
		if err := g.Unpause(); !errors.Is(err, os.ErrProcessDone) {
			t.Fatalf("unpause after the end: %v", err)
		}
		if _, err := begin(Command{Args: []string{"/dev/null"}}, time.Minute); err == nil {
			t.Fatal("started /dev/null")
		}
		p, err := Prepare(Command{Args: []string{"sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		if i == 0 {
			before = count()
		}
	}
	if after := count(); after > before {
		t.Errorf("%d open files, then %d", before, after)
	}
	if len(owned.pids) > 0 {
		t.Errorf("still waits for %v", owned.pids)
	}
	goleak.VerifyNone(t, goleak.IgnoreTopFunction("os/signal.loop"), goleak.IgnoreTopFunction("os/signal.signal_recv"))
}

// The command starts with default dispositions and an empty mask, except for
// what was ignored from the start.
func TestSignalState(t *testing.T) {
	status := []string{"grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"}
	run := concat(self("parent", "--"), status)
	for _, test := range []struct {
		name    string
		argv    []string
		ignored uint64
	}{
		{"plain", run, 0},
		{"nohup", concat([]string{"sh", "-c", `trap "" HUP INT TSTP; exec "$@"`, "sh"}, run), 1<<(unix.SIGHUP-1) | 1<<(unix.SIGINT-1) | 1<<(unix.SIGTSTP-1)},
		{"blocked", concat(self("blocked"), run), 0},
	} {
		p := start(t, test.argv)
		p.want("SigBlk:\t0000000000000000")
		line := p.expect("SigIgn:")
		ignored, err := strconv.ParseUint(strings.TrimPrefix(line, "SigIgn:\t"), 16, 64)
		// Signals from 32 on are the C library's, which a race detector links in.
		if err != nil || ignored&(1<<31-1) != test.ignored {
			t.Errorf("%s: %s, want %x; %v", test.name, line, test.ignored, err)
		}
		p.want("done exit status 0")
	}
}

func TestForwardsSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2} {
		p := start(t, concat(self("parent", "--"), []string{"sleep", "1000"}))
		p.signal(sig)
		p.want(fmt.Sprintf("done killed by signal %d (%v)", int(sig), sig))
	}
}

func TestPause(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "--"), k.args()))
	k.runs()
	p.tell("pause", "<nil>")
	eventually(t, "stopped", func() bool { return stateOf(p.pgid) == "T" })
	p.signal(unix.SIGCONT)
	p.tell("signal 18", "<nil>")
	p.tell("allow 1m", "<nil>")
	k.quiet(300 * time.Millisecond)
	p.tell("unpause", "<nil>")
	k.runs()
	p.tell("unpause", "<nil>")
	k.runs()
	p.kill()
	p.want("done killed by signal 9 (killed)")
}

func TestUnpauseTooLate(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "--"), k.args()))
	k.runs()
	p.tell("pause", "<nil>")
	p.tell("allow 0s", "<nil>")
	p.tell("unpause", ErrExpired.Error())
	k.quiet(300 * time.Millisecond)
	p.tell("allow 1m", "<nil>")
	k.runs() // it isn't paused any more
}

func stateOf(pid int) string {
	s, _ := procstat.Read(strconv.Itoa(pid))
	return s.State
}

// The kernel sends the death signal when the thread that forked ends.
func TestThreadsComeAndGo(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "-churn", "500ms", "--"), k.args()))
	p.want("churned")
	k.runs()
	// While the guard is stopped, only that signal ends the command.
	if err := unix.Kill(p.guard, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(p.guard, unix.SIGKILL)
	p.signal(unix.SIGKILL)
	eventually(t, "the end", func() bool { return running(p.pgid) == 0 })
}

func TestBackgroundProcess(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "--", "sh", "-c", `"$@" & exit 3`, "sh"), k.args()))
	p.want("waiting 1")
	k.runs()
	p.tell("pause", "<nil>")
	k.quiet(100 * time.Millisecond)
	p.tell("unpause", "<nil>")
	k.runs()
	p.kill()
	p.want("done exit status 3")
	if running(p.pgid) > 0 {
		t.Error("done, but it runs")
	}
}

// A member of the group that isn't our child, not even once it is orphaned.
func TestMemberOfAnotherParent(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, self("parent", "--", self("outside")[0], "outside", gate))
	p.want("waiting 1")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.want("member ended")
	p.want("done exit status 0")
}

// unshared is a command that runs another with namespaces of its own. An ordinary user is
// root in one of those.
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

func TestProcessOne(t *testing.T) {
	// sh starts orphans in sessions of their own while it lives, and again when it has ended
	// and a background process remains.
	script := `for i in 1 2 3; do (setsid sleep 0.05 &); done
		(sleep 0.2; for i in 1 2 3; do (setsid sleep 0.05 &); done; sleep 1000) & sleep 0.3`
	p := start(t, concat(unshared(t, "--mount-proc"), self("parent", "--", "sh", "-c", script)))
	p.expect("waiting")
	time.Sleep(300 * time.Millisecond)
	// The leader's zombie stays until the group is empty.
	eventually(t, "one zombie", func() bool { return p.ask("zombies") == 1 })
	p.kill()
	p.want("done exit status 0")
}

// TestNoTerminalInANamespace: a process without a terminal isn't in its foreground, although its
// group, which began outside of its pid namespace, is 0 to it.
func TestNoTerminalInANamespace(t *testing.T) {
	argv := concat(unshared(t), self("terminal"))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "false\n" {
		t.Errorf("%v, %s", err, out)
	}
}

// Elsewhere than as process 1 orphans come to us as well.
func TestReapsOrphansWhileRunning(t *testing.T) {
	p := start(t, self("parent", "--", "sh", "-c", `(setsid sh -c 'echo $$; exec sleep 1000' &); (sh -c 'echo $$; exec sleep 1000' &); sleep 1000`))
	var pids [2]int
	for i := range pids {
		if _, err := fmt.Sscan(p.expect(""), &pids[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range pids {
		eventually(t, "adopted", func() bool {
			s, _ := procstat.Read(strconv.Itoa(pid))
			return s.Parent == p.cmd.Process.Pid
		})
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, "reaped", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
	}
	p.kill()
	p.want("done killed by signal 9 (killed)")
}

// If /proc isn't this pid namespace's, processes can't be counted, but the end is noticed.
func TestWithoutProc(t *testing.T) {
	k := newTicker(t)
	p := launch(t, concat(unshared(t, "--mount"), []string{"sh", "-c", `mount -t tmpfs none /proc && exec "$@"`, "sh"},
		self("parent", "-badguard", "copy", "--", "sh", "-c", `"$@" & exit 3`, "sh"), k.args()))
	p.want("waiting 0")
	k.runs()
	p.kill()
	p.want("done exit status 3")
}
