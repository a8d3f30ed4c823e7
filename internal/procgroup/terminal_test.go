//go:build linux

package procgroup

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/states"
)

// screen is a terminal with an interactive shell, which has job control.
type screen struct {
	t    *testing.T
	pty  *os.File
	cmd  *exec.Cmd
	path string // of the file with all output to the screen
	seen int    // the offset up to which want has read
}

func shell(t *testing.T) *screen {
	t.Helper()
	s := &screen{t: t, cmd: exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i"), path: filepath.Join(t.TempDir(), "screen")}
	s.cmd.Env = append(os.Environ(), "TERM=dumb", "PS1=READY> ", "HISTFILE=")
	text, err := os.Create(s.path)
	assert.OK(t, err)
	s.pty, err = pty.Start(s.cmd)
	assert.OK(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(text, s.pty)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			ps, _ := exec.Command("ps", "-o", "pid,ppid,pgid,tpgid,stat,pending,args", "-s", fmt.Sprint(s.cmd.Process.Pid)).Output()
			t.Logf("its processes:\n%s\nthe screen:\n%s", ps, s.text())
		}
		for _, pid := range inSession(s.cmd.Process.Pid) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		_ = s.cmd.Wait()
		s.pty.Close()
		<-ended
		text.Close()
	})
	s.want("READY> ")
	return s
}

func (s *screen) text() string {
	text, _ := os.ReadFile(s.path)
	return string(text)
}

func (s *screen) send(text string) {
	s.t.Helper()
	assert.OK(s.t, assert.Err(s.pty.WriteString(text)))
}

// run sends a line. A later want doesn't see the earlier output, nor the echo of the line.
func (s *screen) run(line string) {
	s.t.Helper()
	s.send(line + " # echoed\n")
	s.want("# echoed\r\n")
}

// want waits for a text after the last text that it found.
func (s *screen) want(text string) {
	s.t.Helper()
	eventually(s.t, text, func() bool { return s.shows(text) })
}

func (s *screen) shows(text string) bool {
	i := strings.Index(s.text()[s.seen:], text)
	if i >= 0 {
		s.seen += i + len(text)
	}
	return i >= 0
}

func (s *screen) foreground() int {
	pgid, err := unix.IoctlGetInt(int(s.pty.Fd()), unix.TIOCGPGRP)
	assert.OK(s.t, err)
	return pgid
}

// parent is the command line for a parentMain that runs argv.
func (r record) parent(flags string, argv ...string) string {
	all := slices.Concat(self("parent", "-events", r.path), strings.Fields(flags), []string{"--"}, argv)
	for i, a := range all {
		all[i] = "'" + a + "'"
	}
	return strings.Join(all, " ")
}

// TestTerminals: to the terminal and the shell we look like the command. Each scene is a line for the shell,
// and steps. In the line, COMMAND is a parentMain whose command ticks and runs the script. A step "$ x" types
// a line. The cases below are other steps. Any other text is waited for on the screen.
func TestTerminals(t *testing.T) {
	const reads = "TICK until test -e GATE; do sleep 0.05; done; read x; echo got-$x; kill $!"
	const stops = "^Z, Stopped, READY> , shell has it, quiet, "
	for name, c := range map[string]struct{ flags, script, line, steps string }{
		"a job is stopped and continued": {"", reads, "COMMAND", "runs, " + stops + "$ fg, runs, command has it, " + stops + "$ fg, runs, command has it, event asked, " +
			// The command runs in the background until it reads from the terminal.
			stops + "$ bg, runs, open, command stops, shell knows, quiet, $ fg, runs, $ words, got-words, READY> "},
		"a script stops with us":          {"", "", `sh -c "COMMAND; echo next"`, "runs, " + stops + "$ fg, runs, ^C, READY> , event done killed by signal 2"},
		"Ctrl-Z reaches us alone after &": {"", "", "COMMAND &", "runs, $ fg, other has it, " + stops + "$ fg, runs, ^C, READY> , event done killed by signal 2"},
		"fg signals no job that runs":     {"", reads, "COMMAND &", "runs, shell has it, $ fg, other has it, open, $ words, got-words, READY> , never asked"},
		"streams say nothing about it":    {"", "read x </dev/tty; echo got-$x >/dev/tty", "COMMAND </dev/null >/dev/null 2>&1", "event started, command has it, $ words, got-words, READY> "},
		"a continue is refused":           {"-deny", "", "COMMAND", "runs, " + stops + "$ fg, event asked, quiet"},
		"a continue comes too late":       {"-extend 0s", "", "COMMAND", "runs, " + stops + "$ fg, event trouble " + ErrExpired.Error() + ", quiet"},
		"a continue is allowed anew":      {"-extend 0s;1m", "", "COMMAND", "runs, " + stops + "$ fg, event asked, runs"},
		"the terminal comes back":         {"", "true", `sh -c "COMMAND; FOREGROUND"`, "foreground: true, READY> "},
		"… from a group that was killed":  {"", "kill -9 0", `sh -c "COMMAND; FOREGROUND"`, "foreground: true, READY> "},
		// Other commands of a pipeline use the terminal too.
		"a pipeline":          {"", "echo up; exec sleep 1000", `COMMAND | sh -c 'read x; read y </dev/tty; echo got-$x-$y; read z </dev/tty'`, "event started, $ words, got-up-words, ^C, READY> , event done killed by signal 2"},
		"a pipeline's reader": {"", "read x </dev/tty; echo got-$x", "COMMAND | cat", "event started, $ words, got-words, READY> "},
		// A signal that another process sends to us isn't typed.
		"a typed Ctrl-C":     {"", "echo up; exec sleep 1000", "COMMAND", "up, event prepared in the foreground: true, command has it, ^C, READY> , $ echo code=$?, code=130, event typed 2, shell has it"},
		"an interrupt of us": {"", "kill -INT $PPID; exec sleep 1000", "COMMAND", "READY> , event typed 0"},
		// A command that is paused or killed can't restore the modes, so we do. Modes that it leaves at its end
		// stay.
		"modes of a paused and killed command": {"-usr", "stty raw -echo; TICK wait", "COMMAND", "raw, USR1, cooked, USR2, raw, USR1, cooked, USR2, raw, kill, READY> , cooked"},
		"modes that the command leaves":        {"", "stty -echoctl", "COMMAND", "READY> , $ stty -a, -echoctl"},
		// No shell would continue us, so we aren't stopped. We don't use the CPU, and Ctrl-C reaches us.
		"an orphaned group": {"", "", "exec COMMAND", "runs, ^Z, command stops, shell has it, quiet, calm, CONT, runs, command has it, " +
			"^Z, command stops, shell has it, calm, CONT, runs, ^Z, shell has it, ^C, continues until done killed by signal 2"},
	} {
		t.Run(name, func(t *testing.T) {
			s, r, k := shell(t), newRecord(t), newTicker(t)
			gate := filepath.Join(t.TempDir(), "gate")
			command := k.args()
			if c.script != "" {
				// Not dash, which uses vfork(2): it can't be stopped while its child is stopped before
				// execve.
				command = slices.Concat([]string{"bash", "-c", strings.NewReplacer("TICK", `"$@" &`, "GATE", gate).Replace(c.script), "sh"}, command)
			}
			s.run(strings.NewReplacer("COMMAND", r.parent(c.flags, command...), "FOREGROUND", strings.Join(self("foreground"), " ")).Replace(c.line))
			for step := range strings.SplitSeq(c.steps, ", ") {
				word, rest, _ := strings.Cut(step, " ")
				switch {
				case step == "runs":
					r.want("started ") // the command can tick, and be stopped by Ctrl-Z, before its parent knows that it runs
					k.runs()
				case step == "quiet":
					k.quiet()
				case step == "^Z":
					s.send("\x1a")
				case step == "^C":
					s.send("\x03")
				case step == "USR1" || step == "USR2" || step == "CONT": // to us
					_ = unix.Kill(processes()[r.pgid()].Parent, unix.SignalNum("SIG"+step))
				case step == "kill":
					_ = unix.Kill(-r.pgid(), unix.SIGKILL)
				case step == "raw" || step == "cooked":
					eventually(t, step, func() bool {
						modes, err := unix.IoctlGetTermios(int(s.pty.Fd()), unix.TCGETS)
						return err == nil && (modes.Lflag&(unix.ISIG|unix.ECHO) == 0) == (step == "raw")
					})
				case step == "calm":
					time.Sleep(150 * time.Millisecond) // until suspend gives up
					before := cpu(t, s.cmd.Process.Pid)
					time.Sleep(100 * time.Millisecond)
					if used := cpu(t, s.cmd.Process.Pid) - before; used > 5 || states.Of(s.cmd.Process.Pid) == "T" {
						t.Errorf("used %d ticks of the CPU, and is in state %s", used, states.Of(s.cmd.Process.Pid))
					}
				case word == "continues": // again and again, because a stop signal discards an earlier SIGCONT
					eventually(t, step, func() bool {
						_ = s.cmd.Process.Signal(unix.SIGCONT)
						return r.has(strings.TrimPrefix(rest, "until "))
					})
				case step == "open":
					assert.OK(t, os.WriteFile(gate, nil, 0o600))
				case step == "command stops":
					eventually(t, "a stop", func() bool { return states.Of(r.pgid()) == "T" })
				case step == "shell knows":
					eventually(t, "the shell to know", func() bool {
						s.run("jobs")
						time.Sleep(20 * time.Millisecond)
						return s.shows("Stopped")
					})
				case rest == "has it":
					eventually(t, step, func() bool {
						command, shell := s.foreground() == r.pgid(), s.foreground() == s.cmd.Process.Pid
						return word == "command" && command || word == "shell" && shell || word == "other" && !shell
					})
				case word == "$":
					s.run(rest)
				case word == "event":
					r.want(rest)
				case word == "never":
					assert.That(t, !r.has(rest), "%q has come", rest)
				default:
					s.want(step)
				}
			}
		})
	}
}

// cpu is the user and system time that a process has used, in hundredths.
func cpu(t *testing.T, pid int) (ticks int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	assert.OK(t, err)
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var user, system int
	fmt.Sscan(f[11], &user)
	fmt.Sscan(f[12], &system)
	return user + system
}
