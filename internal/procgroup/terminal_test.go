//go:build linux

package procgroup

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procstat"
)

// screen is a terminal with a process on it that is the leader of its session.
type screen struct {
	t    *testing.T
	pty  *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	text bytes.Buffer
	seen int // how far want has read
}

func open(t *testing.T, argv ...string) *screen {
	t.Helper()
	s := &screen{t: t, cmd: exec.Command(argv[0], argv[1:]...)}
	s.cmd.Env = append(os.Environ(), "TERM=dumb", "PS1=READY> ", "HISTFILE=")
	var err error
	if s.pty, err = pty.Start(s.cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 1000)
		for {
			n, err := s.pty.Read(b)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.text.Write(b[:n])
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			ps, _ := exec.Command("ps", "-o", "pid,ppid,pgid,tpgid,stat,pending,args", "-s", fmt.Sprint(s.cmd.Process.Pid)).Output()
			t.Logf("its processes:\n%s", ps)
		}
		for _, pid := range inSession(s.cmd.Process.Pid) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		_ = s.cmd.Wait()
		s.pty.Close()
		<-ended
		if t.Failed() {
			t.Logf("the screen:\n%s", s.text.String())
		}
	})
	return s
}

// shell is an interactive shell with job control.
func shell(t *testing.T) *screen {
	s := open(t, "bash", "--norc", "--noprofile", "--noediting", "-i")
	s.want("READY> ")
	return s
}

func (s *screen) send(text string) {
	s.t.Helper()
	if _, err := s.pty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// run sends a line, and forgets what was on the screen before, its echo included.
func (s *screen) run(line string) {
	s.t.Helper()
	s.send(line + " # echoed\n")
	s.want("# echoed\r\n")
}

// want waits for a text on the screen after the last wanted one.
func (s *screen) want(text string) {
	s.t.Helper()
	eventually(s.t, text, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := strings.Index(s.text.String()[s.seen:], text)
		if i < 0 {
			return false
		}
		s.seen += i + len(text)
		return true
	})
}

func (s *screen) foreground() int {
	pgid, err := unix.IoctlGetInt(int(s.pty.Fd()), unix.TIOCGPGRP)
	if err != nil {
		s.t.Fatal(err)
	}
	return pgid
}

// stopsAll types Ctrl-Z, which stops the job, and the shell prompts.
func (s *screen) stopsAll(k ticker) {
	s.t.Helper()
	s.send("\x1a")
	s.want("Stopped")
	s.want("READY> ")
	if got := s.foreground(); got != s.cmd.Process.Pid {
		s.t.Errorf("the foreground is %d, not the shell", got)
	}
	k.quiet()
}

// parent is the command line for a parentMain that runs argv.
func (r record) parent(flags string, argv ...string) string {
	all := slices.Concat(self("parent", "-events", r.path), strings.Fields(flags), []string{"--"}, argv)
	for i, a := range all {
		all[i] = "'" + a + "'"
	}
	return strings.Join(all, " ")
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCtrlC(t *testing.T) {
	s := shell(t)
	r := newRecord(t)
	s.run(r.parent("", "sh", "-c", "echo up; exec sleep 1000"))
	s.want("up")
	r.want("prepared, foreground: true")
	if got, want := s.foreground(), r.pgid(); got != want {
		t.Errorf("the foreground is %d, not the command %d", got, want)
	}
	s.send("\x03")
	s.want("READY> ")
	s.run("echo code=$?")
	s.want("code=130\r\n")
	if got := s.foreground(); got != s.cmd.Process.Pid {
		t.Errorf("the foreground is %d, not the shell", got)
	}
	r.want("typed 2")

	// A process that signals us has not signalled the terminal's group.
	r = newRecord(t)
	s.run(r.parent("", "sh", "-c", `kill -INT $PPID; exec sleep 1000`))
	s.want("READY> ")
	r.want("typed 0")
}

// A command that is paused or killed can't restore the terminal's modes. (And a shell that
// sees us exit keeps the modes that it finds.)
func TestModes(t *testing.T) {
	s := shell(t)
	r := newRecord(t)
	raw := func() bool {
		modes, err := unix.IoctlGetTermios(int(s.pty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return modes.Lflag&(unix.ISIG|unix.ECHO) == 0
	}
	s.run(r.parent("-usr", "sh", "-c", "stty raw -echo; exec sleep 1000"))
	eventually(t, "raw modes", raw)
	ours, ok := procstat.Read(fmt.Sprint(r.pgid()))
	if !ok {
		t.Fatal("it is gone")
	}
	for range 2 {
		_ = unix.Kill(ours.Parent, unix.SIGUSR1)
		eventually(t, "modes in which Ctrl-C works", func() bool { return !raw() })
		_ = unix.Kill(ours.Parent, unix.SIGUSR2)
		eventually(t, "the command's modes", raw)
	}
	_ = unix.Kill(r.pgid(), unix.SIGKILL)
	s.want("READY> ")
	if raw() {
		t.Error("the shell has raw modes")
	}

	// A process that the command leaves behind on purpose stays.
	s.run(newRecord(t).parent("", "stty", "-echoctl"))
	s.want("READY> ")
	s.run("stty -a")
	s.want("-echoctl")
}

// A shell without job control doesn't take the terminal back for us.
func TestTerminalComesBack(t *testing.T) {
	s := shell(t)
	script := newRecord(t).parent("", "true") + "; " + strings.Join(self("foreground"), " ")
	s.run(`sh -c "` + script + `"`)
	s.want("foreground: true")
	// The group of a killed command must not keep it either.
	script = newRecord(t).parent("", "sh", "-c", "kill -9 0") + "; " + strings.Join(self("foreground"), " ")
	s.run(`sh -c "` + script + `"`)
	s.want("foreground: true")
}

// The standard streams say nothing about the terminal.
func TestRedirected(t *testing.T) {
	s := shell(t)
	r := newRecord(t)
	s.run(r.parent("", "sh", "-c", "read x </dev/tty; echo got-$x >/dev/tty") + " </dev/null >/dev/null 2>&1")
	if pgid := r.pgid(); s.foreground() != pgid {
		t.Error("the command doesn't have the terminal")
	}
	s.send("words\n")
	s.want("got-words")
	s.want("READY> ")
}

// TestBackground: a job is stopped by Ctrl-Z, continued by fg and bg, and runs in the background until
// it reads from the terminal.
func TestBackground(t *testing.T) {
	s := shell(t)
	r := newRecord(t)
	k := newTicker(t)
	// Not dash: it uses vfork(2), and a shell whose child is stopped before it has
	// called execve can't be stopped itself.
	gate := filepath.Join(t.TempDir(), "gate")
	s.run(r.parent("", "bash", "-c", `"$@" & until test -e `+gate+`; do sleep 0.05; done; read x; echo got-$x; kill $!`, "sh", k.args()[0], "tick", k.path))
	k.runs()
	for range 2 {
		s.stopsAll(k)
		s.run("fg")
		k.runs()
		if got, want := s.foreground(), r.pgid(); got != want {
			t.Errorf("the foreground is %d, not the command %d", got, want)
		}
	}
	r.want("asked")
	s.stopsAll(k)
	s.run("bg")
	k.runs()
	touch(t, gate)
	eventually(t, "a stop", func() bool { return stateOf(r.pgid()) == "T" })
	s.run("")
	s.want("READY> ")
	eventually(t, "the shell to know", func() bool {
		s.run("jobs")
		time.Sleep(20 * time.Millisecond)
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(s.text.String()[s.seen:], "Stopped")
	})
	k.quiet()
	s.run("fg")
	k.runs()
	s.send("words\n")
	s.want("got-words")
	s.want("READY> ")
}

// The shell's fg doesn't signal a job that runs already.
func TestForegroundWithoutSignal(t *testing.T) {
	s := shell(t)
	r := newRecord(t)
	gate := filepath.Join(t.TempDir(), "gate")
	s.run(r.parent("", "sh", "-c", "until test -e "+gate+"; do sleep 0.05; done; read x; echo got-$x") + " &")
	r.want("started ")
	if s.foreground() == r.pgid() {
		t.Error("it took the terminal")
	}
	s.run("fg")
	eventually(t, "foreground", func() bool { return s.foreground() != s.cmd.Process.Pid })
	touch(t, gate)
	s.send("words\n")
	s.want("got-words")
	s.want("READY> ")
	if r.has("asked") {
		t.Error("we were stopped")
	}
}

// TestCtrlZ: a script stops with us, or the shell would never get its prompt. Ctrl-Z stops the command
// also if the terminal is ours, because the shell's fg didn't signal us.
func TestCtrlZ(t *testing.T) {
	for line, fg := range map[string]bool{`sh -c "%s; echo next"`: false, "%s &": true} {
		s := shell(t)
		r := newRecord(t)
		k := newTicker(t)
		s.run(fmt.Sprintf(line, r.parent("", k.args()...)))
		k.runs()
		if fg {
			s.run("fg")
			eventually(t, "foreground", func() bool { return s.foreground() != s.cmd.Process.Pid })
		}
		s.stopsAll(k)
		s.run("fg")
		k.runs()
		s.send("\x03")
		s.want("READY> ")
		r.want("done killed by signal 2")
	}
}

// TestContinue: when the shell continues us, BeforeContinue decides, and the allowance that it leaves.
func TestContinue(t *testing.T) {
	for flags, c := range map[string]struct {
		event string
		runs  bool
	}{
		"-deny":         {"asked", false},
		"-extend 0s":    {"trouble " + ErrExpired.Error(), false},
		"-extend 0s,1m": {"asked", true}, // its time was over meanwhile
	} {
		s := shell(t)
		r := newRecord(t)
		k := newTicker(t)
		s.run(r.parent(flags, k.args()...))
		k.runs()
		s.stopsAll(k)
		s.run("fg")
		r.want(c.event)
		if c.runs {
			k.runs()
		} else {
			k.quiet()
		}
	}
}

// Others in a pipeline use the terminal too.
func TestPipeline(t *testing.T) {
	s := shell(t)
	r := newRecord(t)
	s.run(r.parent("", "sh", "-c", "echo up; exec sleep 1000") + ` | sh -c 'read x; read y </dev/tty; echo got-$x-$y; read z </dev/tty'`)
	r.want("started ")
	s.send("words\n")
	s.want("got-up-words")
	s.send("\x03")
	s.want("READY> ")
	r.want("done killed by signal 2")

	r = newRecord(t)
	s.run(r.parent("", "sh", "-c", "read x </dev/tty; echo got-$x") + " | cat")
	r.want("started ")
	s.send("words\n")
	s.want("got-words")
	s.want("READY> ")
}

// No shell would continue us: we aren't stopped, and don't spin.
func TestOrphanedGroup(t *testing.T) {
	r := newRecord(t)
	k := newTicker(t)
	argv := slices.Concat(self("parent", "-events", r.path, "--"), k.args())
	s := open(t, argv...)
	k.runs()
	for range 2 {
		s.send("\x1a")
		eventually(t, "stopped", func() bool { return stateOf(r.pgid()) == "T" })
		eventually(t, "terminal", func() bool { return s.foreground() == s.cmd.Process.Pid })
		time.Sleep(150 * time.Millisecond) // until suspend gives up
		before := cpu(t, s.cmd.Process.Pid)
		k.quiet()
		if used := cpu(t, s.cmd.Process.Pid) - before; used > 10 {
			t.Errorf("used %d ticks of the CPU", used)
		}
		if state := stateOf(s.cmd.Process.Pid); state == "T" {
			t.Fatal("we are stopped")
		}
		if err := s.cmd.Process.Signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		k.runs()
		eventually(t, "terminal", func() bool { return s.foreground() == r.pgid() })
	}
	// While it is stopped, Ctrl-C reaches us.
	s.send("\x1a")
	eventually(t, "terminal", func() bool { return s.foreground() == s.cmd.Process.Pid })
	s.send("\x03")
	eventually(t, "its end", func() bool {
		_ = s.cmd.Process.Signal(unix.SIGCONT) // a stop signal discards a SIGCONT of before
		return r.has("done killed by signal 2")
	})
}

// cpu is the user and system time that a process has used, in hundredths.
func cpu(t *testing.T, pid int) (ticks int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var user, system int
	fmt.Sscan(f[11], &user)
	fmt.Sscan(f[12], &system)
	return user + system
}
