//go:build unix && programs && !minio

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/repolock/repolock/internal/procstat"
)

// shells are those that have job control; zsh with settings that make it most like the others.
var shells = map[string][]string{
	"bash": {"bash", "--norc", "--noprofile", "--noediting", "-i"},
	"dash": {"dash", "-i"},
	"zsh":  {"zsh", "-f", "-i", "-o", "shwordsplit", "-o", "interactivecomments", "+o", "zle", "+o", "notify", "+o", "promptsp", "+o", "promptcr"},
}

// window is a real terminal, tmux's, with an interactive shell in it.
type window struct {
	s      *site
	name   string
	socket string
	typed  int // lines, each with its number
}

// ready is the shell's prompt.
const ready = "READY>"

func (s *site) window(name, shell string, env ...string) *window {
	s.t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tmux-") // TMPDIR can be too long for sockets
	if err != nil {
		s.t.Fatal(err)
	}
	w := &window{s: s, name: name, socket: filepath.Join(dir, "socket")}
	argv := append([]string{"-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30"}, shells[shell]...)
	new := w.command(argv...)
	new.Dir = s.dir
	new.Env = append(s.environ(), "PS1="+ready+" ", "HISTFILE=", "LESS=", "LESSHISTFILE=-", "WINDOW="+name)
	new.Env = append(new.Env, env...)
	if out, err := new.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the screen of %s:\n%s", name, w.screen())
		}
		_ = w.command("kill-server").Run()
		_ = os.RemoveAll(dir)
	})
	w.shows("^" + ready + "$")
	return w
}

func (w *window) command(args ...string) *exec.Cmd {
	return exec.Command("tmux", append([]string{"-S", w.socket}, args...)...)
}

func (w *window) tmux(args ...string) string {
	w.s.t.Helper()
	out, err := w.command(args...).CombinedOutput()
	if err != nil {
		w.s.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// screen returns the text on the screen, with wrapped lines joined.
func (w *window) screen() string {
	out, _ := w.command("capture-pane", "-p", "-J").Output()
	return trim(string(out))
}

// rows returns the lines of the screen as they are, with those that have scrolled away.
func (w *window) rows() []string {
	return strings.Split(trim(w.tmux("capture-pane", "-p", "-S", "-")), "\n")
}

// trim removes white space that can't be seen.
func trim(screen string) string {
	lines := strings.Split(screen, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// key presses keys, by their names in tmux.
func (w *window) key(names ...string) {
	w.s.t.Helper()
	w.tmux(append([]string{"send-keys"}, names...)...)
}

// text types a line to the program that reads the terminal.
func (w *window) text(line string) {
	w.s.t.Helper()
	w.tmux("send-keys", "-l", line)
	w.key("Enter")
}

// run types a line to the shell, with a number at its end.
func (w *window) run(line string) {
	w.s.t.Helper()
	w.typed++
	w.text(fmt.Sprintf("%s # %d", line, w.typed))
}

// after returns the screen after the line that was typed last, or the whole screen of a
// program that uses the alternate screen.
func (w *window) after() string {
	screen := w.screen()
	_, after, found := strings.Cut(screen+"\n", fmt.Sprintf(" # %d\n", w.typed))
	switch {
	case found:
		return strings.TrimSuffix(after, "\n")
	case w.typed == 0 || w.tmux("display-message", "-p", "#{alternate_on}") == "1\n":
		return screen
	default:
		return "not typed yet"
	}
}

// shows waits until after returns this text.
func (w *window) shows(pattern string) string {
	w.s.t.Helper()
	re, shown := regexp.MustCompile(pattern), ""
	w.s.until(fmt.Sprintf("%q on the screen", pattern), hang, func() bool {
		shown = w.after()
		return re.MatchString(shown)
	})
	return shown
}

// record writes down all bytes that are shown from now on.
func (w *window) record() (bytes func() string) {
	w.s.t.Helper()
	path := w.s.path("record-" + strconv.Itoa(w.typed))
	w.s.touch(filepath.Base(path))
	w.tmux("pipe-pane", "-o", "exec cat >>"+path)
	return func() string {
		raw, err := os.ReadFile(path)
		if err != nil {
			w.s.t.Fatal(err)
		}
		return string(raw)
	}
}

// pid returns the pid that a command has written into a file.
func (s *site) pid(name string) (pid int) {
	s.t.Helper()
	s.until("a pid in "+name, hang, func() bool {
		raw, _ := os.ReadFile(s.path(name))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
		return pid > 0
	})
	return pid
}

// state returns a process's parent, and whether it is stopped.
func state(pid int) (parent int, stopped bool) {
	s, _ := procstat.Read(strconv.Itoa(pid))
	return s.Parent, s.State == "T"
}
