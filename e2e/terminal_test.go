//go:build linux && programs

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/procstat"
	"github.com/repolock/repolock/internal/test/assert"
)

// shells have job control. The settings make zsh most like the others.
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
	w := s.terminal(name, 100, 30, shells[shell], env...)
	w.shows("^" + ready + "$")
	return w
}

// terminal starts a program in a terminal of this size, of which tmux takes one row.
func (s *site) terminal(name string, columns, rows int, argv []string, env ...string) *window {
	s.t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tmux-") // TMPDIR can be too long for sockets
	assert.OK(s.t, err)
	w := &window{s: s, name: name, socket: filepath.Join(dir, "socket")}
	size := []string{"-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows)}
	new := w.command(slices.Concat([]string{"-f", "/dev/null", "new-session", "-d"}, size, argv)...)
	new.Dir = s.dir
	new.Env = append(s.environ(), "PS1="+ready+" ", "HISTFILE=", "LESS=", "LESSHISTFILE=-", "WINDOW="+name)
	new.Env = append(new.Env, env...)
	assert.Output(s.t, new)
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the screen of %s:\n%s", name, w.screen())
		}
		_ = w.command("kill-server").Run()
		_ = os.RemoveAll(dir)
	})
	return w
}

func (w *window) command(args ...string) *exec.Cmd {
	return exec.Command("tmux", append([]string{"-u", "-S", w.socket}, args...)...)
}

func (w *window) tmux(args ...string) string {
	w.s.t.Helper()
	return assert.Output(w.s.t, w.command(args...))
}

// screen returns the text on the screen, with wrapped lines joined.
func (w *window) screen() string {
	out, _ := w.command("capture-pane", "-p", "-J").Output()
	return trim(string(out))
}

// rows returns the lines of the screen, unjoined, with the lines that have scrolled away.
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
	w.s.until(fmt.Sprintf("%q on the screen", pattern), func() bool {
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
		return read(w.s.t, path)
	}
}

// state returns a process's parent, and whether it is stopped.
func state(pid int) (parent int, stopped bool) {
	s, _ := procstat.Read(strconv.Itoa(pid))
	return s.Parent, s.State == "T"
}

const waits = "repolock run --exclusive --ttl 10s --wait forever -- echo done"

// span matches a time span in one unit or two.
const span = `(?:\d+[dhms]){1,2}`

// TestWaitingOnAScreen: one line shows the holders, until the lock is free.
func TestWaitingOnAScreen(t *testing.T) {
	s := newSite(t)
	holder := s.hold("backup", "a")
	w := s.window("waits", "bash")
	w.run("seq 25") // the screen is nearly full: tmux moves lines when it is empty
	w.shows("25\n" + ready + "$")
	w.run(waits)
	line := fmt.Sprintf(`^waiting %s: held by backup on \S+ \(pid %d, \S+\) for %[1]s, last seen (%[1]s ago|.*…)$`, span, holder.Process.Pid)
	w.shows(line)
	inPlace := func(pattern string) {
		t.Helper()
		for range 3 { // seconds later the line has changed, and is still the only one
			now := w.shows(pattern)
			w.shows("^waiting ")
			s.until("the line to be drawn again", func() bool { return w.after() != now })
			assert.Equal(t, strings.Count(strings.Join(w.rows(), "\n"), "waiting "), 1, "lines of the wait")
		}
	}
	inPlace(line)

	w.tmux("resize-window", "-x", "40", "-y", "30")
	narrow := `^waiting ` + span + ` for backup on \S+.*…$`
	inPlace(narrow)
	for _, row := range w.rows()[len(w.rows())-2:] {
		assert.That(t, !strings.Contains(row, "last seen") && len([]rune(row)) <= 40, "a row is %q", row)
	}
	w.tmux("resize-window", "-x", "80", "-y", "30")
	inPlace(`^waiting ` + span + ` for backup on \S+ .*, last seen .*$`)

	w.key("C-z")
	w.shows(`(?s)Stopped.*` + ready + `$`)
	w.run("fg")
	w.shows("(?m)^waiting ")

	holder.end("a")
	got := w.shows(ready + "$")
	assert.That(t, !strings.Contains(got, "waiting") && strings.HasSuffix(got, "\ndone\n"+ready), "when the lock is there the screen is\n%s", got)
	assert.Equal(t, s.locks(), nil, "left")
}

// TestWaitingInBackground: a wait in the background leaves text alone that the user types to
// the shell, also when it ends.
func TestWaitingInBackground(t *testing.T) {
	s := newSite(t)
	holder := s.hold("backup", "a")
	w := s.window("waits", "bash")
	w.run(waits)
	w.shows("^waiting ")
	w.key("C-z")
	w.shows(`(?s)Stopped.*` + ready + `$`)
	w.run("bg")
	w.shows(ready + "$")
	w.tmux("send-keys", "-l", "half a line")
	time.Sleep(3 * time.Second)
	w.shows(ready + " half a line$")
	holder.end("a")
	w.shows(ready + " half a linedone$")
}

// TestCtrlCWhileWaiting: Ctrl-C in a wait leaves nothing, on the screen or in the repository.
func TestCtrlCWhileWaiting(t *testing.T) {
	for shell := range shells {
		t.Run(shell, func(t *testing.T) {
			s := newSite(t)
			s.hold("backup", "a")
			held := len(s.locks())
			w := s.window("waits", shell)
			for _, line := range []string{waits, `sh -c "` + waits + `; echo next"`, `bash -c "` + waits + `; echo next"`} {
				w.run(line)
				w.shows("^waiting ")
				s.until("its place in the queue", func() bool { return len(s.locks()) > held })
				w.key("C-c")
				w.shows("^repolock: error: interrupted; nothing was run\n+" + ready + "$")
				assert.Equal(t, len(s.locks()), held, "objects of locks")
				w.run("echo code $?")
				w.shows("^code 130\n" + ready + "$")
				w.run(modes)
				w.shows(sane)
			}
		})
	}
}

// TestSuspended: if fg comes too late after Ctrl-Z, because another client has acquired the lock, the command
// never runs again. (In TestAuditSuspended fg comes in time, or the lock is resumed.)
// dash isn't tested: it starts programs by vfork, and doesn't stop if Ctrl-Z stops one before its
// exec.
func TestSuspended(t *testing.T) {
	s := newSite(t)
	w := s.window("shell", "bash")
	w.run("repolock run --exclusive --ttl 10s -- bash -c 'echo $$ >pid; while :; do date +%s%N >>ticks; sleep 0.1; done'")
	pid := s.pidIn("pid")
	s.until("ticks", func() bool { return len(s.times("ticks")) > 0 })
	w.key("C-z")
	w.shows(`(?s)Stopped.*` + ready + `$`)
	parent, stops := state(pid)
	_, us := state(parent)
	assert.That(t, stops && us, "stopped: the command %v, repolock %v", stops, us)
	s.freed(time.Now().Add(ttl + 5*time.Second))
	ticks := len(s.times("ticks"))
	w.run("fg")
	w.shows("(?s)lost.*" + ready + "$")
	w.run("echo code $?")
	w.shows("^code 79\n")
	s.until("its end", func() bool { return ended(pid) })
	assert.Equal(t, len(s.times("ticks")), ticks, "ticks")
	w.run(modes)
	w.shows(sane)
}

// TestWatchOnAScreen: status --watch follows a lock that comes and goes, in place.
func TestWatchOnAScreen(t *testing.T) {
	s := newSite(t)
	w := s.window("watch", "bash")
	w.run("repolock status --watch --interval 200ms")
	none := `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  \S+\nno locks$`
	w.shows(none)
	holder := s.hold("backup", "a")
	one := `^\d{4}-\S+ \S+Z  \S+\nVERDICT .*\nlive +shared +backup .*`
	w.shows(one)
	w.tmux("resize-window", "-x", "40", "-y", "30")
	w.s.until("a narrow table", func() bool {
		screen := w.screen()
		return strings.Count(screen, "VERDICT") == 1 && strings.Count(screen, "backup") == 1 && strings.Contains(screen, "…")
	})
	w.tmux("resize-window", "-x", "100", "-y", "30")
	w.key("C-z")
	w.s.until("a prompt", func() bool { return strings.HasSuffix(w.screen(), ready) })
	w.run("bg")
	w.shows(ready + "$")
	time.Sleep(time.Second)
	w.shows(ready + "$")
	w.run("fg")
	w.shows(`(?m)^VERDICT .*\nlive +shared +backup .*`)
	holder.end("a")
	w.shows(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  \S+\nno locks$`)
	w.key("C-c")
	w.shows(ready + "$")
	assert.Equal(t, strings.Count(w.after(), "no locks"), 1, "tables on the screen")
	w.run("echo code $?")
	w.shows("^code 130\n" + ready + "$")
	w.run(modes)
	w.shows(sane)
}

// step is one action at a terminal, and a pattern of the output that follows. The action is a line for the
// shell, a line for the running program, a key, or a kill of the program. With stops the program stops by
// itself.
type step struct {
	run, text, key string
	kill, stops    bool
	shows          string
}

const (
	up        = "sh -c 'echo up; exec sleep 1000'"
	modes     = "stty -a | grep -ow -e '-*icanon' -e '-*echo' -e '-*isig'"
	sane      = "^isig\nicanon\necho\n" + ready + "$"
	prompted  = "(?s)" + ready + "$"
	suspended = `(?is)(stopped|suspended).*` + ready + "$"
)

// jobs are uses of a command at a terminal. $W is repolock, or nothing.
var jobs = map[string][]step{
	"Ctrl-C": {
		{run: "$W " + up, shows: "up$"}, {key: "C-c", shows: prompted}, {run: "echo code $?", shows: "^code 130\n" + ready},
	},
	"Ctrl-C, and the command has an answer": {
		{run: `$W sh -c 'trap "echo caught; exit 3" INT; echo up; while :; do sleep 0.1; done'`, shows: "up$"},
		{key: "C-c", shows: "(?s)caught\n" + ready + "$"}, {run: "echo code $?", shows: "^code 3\n" + ready},
	},
	"Ctrl-C in a loop": {
		{run: "for i in 1 2 3; do $W " + up + "; done; echo over", shows: "up$"}, {key: "C-c", shows: prompted},
		{run: "echo code $?", shows: "^code 130\n" + ready},
	},
	"Ctrl-C in a script": {
		{run: `sh -c "$W ` + up + `; echo next"`, shows: "up$"}, {key: "C-c", shows: prompted},
		{run: `bash -c "$W ` + up + `; echo next"`, shows: "up$"}, {key: "C-c", shows: prompted},
		{run: "echo code $?", shows: "^code 130\n" + ready},
	},
	"Ctrl-C in a pipeline": {
		{run: "$W " + up + " | cat; echo over", shows: "up$"}, {key: "C-c", shows: prompted},
		{run: `sh -c "$W ` + up + ` | cat; echo next"`, shows: "up$"}, {key: "C-c", shows: prompted},
	},
	`Ctrl-\`: {
		{run: "$W " + up, shows: "up$"}, {key: `C-\`, shows: prompted}, {run: "echo code $?", shows: "^code 131\n" + ready},
		{run: `sh -c "$W ` + up + `; echo next"`, shows: "up$"}, {key: `C-\`, shows: prompted},
	},
	"Ctrl-Z, jobs, fg": {
		{run: "$W cat", shows: "^$"}, {text: "hello", shows: "^hello\nhello$"}, {key: "C-z", shows: suspended},
		{run: "jobs", shows: suspended}, {run: "fg", shows: `cat$`}, {text: "again", shows: "again\nagain$"},
		{key: "C-z", shows: suspended}, {run: "fg", shows: `cat$`}, {text: "more", shows: "more\nmore$"},
		{key: "C-d", shows: prompted}, {run: "echo code $?", shows: "^code 0\n" + ready},
	},
	"Ctrl-Z, bg, fg": {
		{run: "$W " + up, shows: "up$"}, {key: "C-z", shows: suspended}, {run: "bg", shows: prompted},
		{run: "jobs", shows: "(?is)running.*" + ready + "$"}, {run: "fg", shows: `sleep 1000['\"]$`},
		{key: "C-c", shows: prompted}, {run: "echo code $?", shows: "^code 130\n" + ready},
	},
	"Ctrl-Z in a script": {
		{run: `sh -c '$W cat; echo next'`, shows: "^$"}, {text: "hello", shows: "^hello\nhello$"}, {key: "C-z", shows: suspended},
		{run: "fg", shows: `next['\"]$`}, {text: "again", shows: "again\nagain$"}, {key: "C-d", shows: "next\n" + ready + "$"},
	},
	"in the background": {
		{run: "$W sh reader &", shows: prompted}, {stops: true}, {run: "", shows: suspended},
		{run: "jobs", shows: suspended}, {run: "fg", shows: `sh reader$`}, {text: "words", shows: "got-words\n" + ready + "$"},
	},
	"pipeline": {
		{run: "$W cat | cat", shows: "^$"}, {text: "hello", shows: "^hello\nhello$"}, {key: "C-z", shows: suspended},
		{run: "fg", shows: `cat$`}, {text: "again", shows: "again\nagain$"}, {key: "C-d", shows: prompted},
		{run: "echo words | $W cat", shows: "^words\n" + ready + "$"},
	},
	"less": {
		{run: "seq 200 >file; $W less file", shows: "^1\n2\n(?s).*29\nfile$"}, {key: "Space", shows: "^30\n"},
		{key: "C-z", shows: suspended}, {run: modes, shows: sane}, {run: "fg", shows: "^30\n(?s).*58\n:$"},
		{key: "q", shows: prompted}, {run: modes, shows: sane},
		{run: "seq 200 | $W less", shows: "^1\n2\n(?s).*29\n:$"}, {key: "C-z", shows: suspended}, {run: "fg", shows: "^1\n2\n(?s).*29\n:$"},
		{key: "q", shows: prompted}, {run: modes, shows: sane},
	},
	"bash: less is killed": {
		{run: "seq 200 >file; $W sh -c 'echo $$ >pid-$WINDOW; exec less file'", shows: "^1\n2\n(?s).*29\nfile$"},
		{kill: true, shows: prompted}, {run: modes, shows: sane},
	},
	"bash: raw modes, and killed": {
		{run: "$W sh -c 'echo $$ >pid-$WINDOW; stty raw -echo; echo up; exec sleep 1000'", shows: "up"},
		{kill: true, shows: prompted}, {run: modes, shows: sane},
	},
	"modes that are left on purpose": {
		{run: "$W stty -echo", shows: prompted}, {text: modes, shows: "(?s)-echo\n" + ready + "$"},
	},
}

// TestJobControl: job control works as if repolock were not there. After each key the screen
// is the same, apart from the numbers of processes, the shell's message for a death by a
// signal, where it sees an exit code, and the reason why a job has stopped in the background.
func TestJobControl(t *testing.T) {
	for name, steps := range jobs {
		for shell := range shells {
			if only, _, some := strings.Cut(name, ": "); some && only != shell { // the other shells don't restore modes
				continue
			}
			t.Run(shell+" "+name, func(t *testing.T) {
				s := newSite(t)
				// It reads once the shell has shown its prompt, so that the shell shows the stop after it.
				reader := "echo $$ >pid-$WINDOW; until [ -e prompted ]; do sleep 0.1; done; read x; echo got-$x"
				s.write("reader", reader)
				bare, wrapped := s.window("bare", shell, "W="), s.window("wrapped", shell, "W=repolock run --exclusive --ttl 10s --")
				killed := false
				for _, st := range steps {
					bare.do(st)
					wrapped.do(st)
					var want, got string
					equal := func() bool {
						want, got = same(bare.screen()), same(wrapped.screen())
						return want == got
					}
					if killed = killed || st.kill; killed { // the shell without repolock prints one more line
						continue
					}
					for end := time.Now().Add(30 * time.Second); !equal(); time.Sleep(20 * time.Millisecond) {
						assert.Need(t, time.Now().Before(end), "after %+v the screen is\n%s\n--- and without repolock\n%s", st, got, want)
					}
				}
				s.until("the lock to be released", func() bool { return len(s.locks()) == 0 })
			})
		}
	}
}

// do does a step, and waits for its output.
func (w *window) do(st step) {
	w.s.t.Helper()
	switch {
	case st.kill:
		_ = syscall.Kill(w.s.pidIn("pid-"+w.name), syscall.SIGKILL)
	case st.stops:
		w.s.touch("prompted")
		pid := w.s.pidIn("pid-" + w.name)
		w.s.until("a stop", func() bool {
			parent, stopped := state(pid)
			_, all := state(parent)
			return stopped && (all || w.name == "bare")
		})
	case st.key != "":
		w.key(st.key)
	case st.text != "":
		w.text(st.text)
	default:
		w.run(st.run)
	}
	w.shows(st.shows)
}

var (
	numbers = regexp.MustCompile(`(?m)^(\[\d\]( [+-])?) +\d+`)
	reasons = regexp.MustCompile(`(Stopped|suspended) (\(tty input\))? *`)
	deaths  = regexp.MustCompile(`(zsh: )?([Qq]uit)( \(core dumped\))?( .*)?\n`)
)

// same returns a screen without the parts that can differ.
func same(screen string) string {
	screen = numbers.ReplaceAllString(screen, "$1 PID")
	screen = reasons.ReplaceAllString(screen, "$1 ")
	return deaths.ReplaceAllString(screen, "")
}

// locks returns the files of the repository's locks.
func (s *site) locks() []string {
	return slices.DeleteFunc(s.left(), func(name string) bool { return strings.Contains(name, "/.") })
}
