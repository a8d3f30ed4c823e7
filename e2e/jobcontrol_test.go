//go:build unix && programs && !minio

package e2e

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// step is one action at a terminal, and a pattern of the output that follows. The action is a
// line for the shell, a line for the running program, a key, or a kill of the program; or the
// program stops by itself.
type step struct {
	run, text, key string
	kill, stops    bool
	shows          string
}

const (
	up        = "sh -c 'echo up; exec sleep 1000'"
	modes     = "stty -a | grep -ow -e '-*icanon' -e '-*echo' -e '-*isig'"
	sane      = "^isig\nicanon\necho\n" + ready + "$"
	prompt    = "(?s)" + ready + "$"
	suspended = `(?is)(stopped|suspended).*` + ready + "$"
)

// jobs are uses of a command at a terminal. $W is repolock, or nothing.
var jobs = map[string][]step{
	"Ctrl-C": {
		{run: "$W " + up, shows: "up$"}, {key: "C-c", shows: prompt}, {run: "echo code $?", shows: "^code 130\n" + ready},
	},
	"Ctrl-C, and the command has an answer": {
		{run: `$W sh -c 'trap "echo caught; exit 3" INT; echo up; while :; do sleep 0.1; done'`, shows: "up$"},
		{key: "C-c", shows: "(?s)caught\n" + ready + "$"}, {run: "echo code $?", shows: "^code 3\n" + ready},
	},
	"Ctrl-C in a loop": {
		{run: "for i in 1 2 3; do $W " + up + "; done; echo over", shows: "up$"}, {key: "C-c", shows: prompt},
		{run: "echo code $?", shows: "^code 130\n" + ready},
	},
	"Ctrl-C in a script": {
		{run: `sh -c "$W ` + up + `; echo next"`, shows: "up$"}, {key: "C-c", shows: prompt},
		{run: `bash -c "$W ` + up + `; echo next"`, shows: "up$"}, {key: "C-c", shows: prompt},
		{run: "echo code $?", shows: "^code 130\n" + ready},
	},
	"Ctrl-C in a pipeline": {
		{run: "$W " + up + " | cat; echo over", shows: "up$"}, {key: "C-c", shows: prompt},
		{run: `sh -c "$W ` + up + ` | cat; echo next"`, shows: "up$"}, {key: "C-c", shows: prompt},
	},
	`Ctrl-\`: {
		{run: "$W " + up, shows: "up$"}, {key: `C-\`, shows: prompt}, {run: "echo code $?", shows: "^code 131\n" + ready},
		{run: `sh -c "$W ` + up + `; echo next"`, shows: "up$"}, {key: `C-\`, shows: prompt},
	},
	"Ctrl-Z, jobs, fg": {
		{run: "$W cat", shows: "^$"}, {text: "hello", shows: "^hello\nhello$"}, {key: "C-z", shows: suspended},
		{run: "jobs", shows: suspended}, {run: "fg", shows: `cat$`}, {text: "again", shows: "again\nagain$"},
		{key: "C-z", shows: suspended}, {run: "fg", shows: `cat$`}, {text: "more", shows: "more\nmore$"},
		{key: "C-d", shows: prompt}, {run: "echo code $?", shows: "^code 0\n" + ready},
	},
	"Ctrl-Z, bg, fg": {
		{run: "$W " + up, shows: "up$"}, {key: "C-z", shows: suspended}, {run: "bg", shows: prompt},
		{run: "jobs", shows: "(?is)running.*" + ready + "$"}, {run: "fg", shows: `sleep 1000['\"]$`},
		{key: "C-c", shows: prompt}, {run: "echo code $?", shows: "^code 130\n" + ready},
	},
	"Ctrl-Z in a script": {
		{run: `sh -c '$W cat; echo next'`, shows: "^$"}, {text: "hello", shows: "^hello\nhello$"}, {key: "C-z", shows: suspended},
		{run: "fg", shows: `next['\"]$`}, {text: "again", shows: "again\nagain$"}, {key: "C-d", shows: "next\n" + ready + "$"},
	},
	"in the background": {
		{run: "$W sh reader &", shows: prompt}, {stops: true}, {run: "", shows: suspended},
		{run: "jobs", shows: suspended}, {run: "fg", shows: `sh reader$`}, {text: "words", shows: "got-words\n" + ready + "$"},
	},
	"pipeline": {
		{run: "$W cat | cat", shows: "^$"}, {text: "hello", shows: "^hello\nhello$"}, {key: "C-z", shows: suspended},
		{run: "fg", shows: `cat$`}, {text: "again", shows: "again\nagain$"}, {key: "C-d", shows: prompt},
		{run: "echo words | $W cat", shows: "^words\n" + ready + "$"},
	},
	"less": {
		{run: "seq 200 >file; $W less file", shows: "^1\n2\n(?s).*29\nfile$"}, {key: "Space", shows: "^30\n"},
		{key: "C-z", shows: suspended}, {run: modes, shows: sane}, {run: "fg", shows: "^30\n(?s).*58\n:$"},
		{key: "q", shows: prompt}, {run: modes, shows: sane},
		{run: "seq 200 | $W less", shows: "^1\n2\n(?s).*29\n:$"}, {key: "C-z", shows: suspended}, {run: "fg", shows: "^1\n2\n(?s).*29\n:$"},
		{key: "q", shows: prompt}, {run: modes, shows: sane},
	},
	"bash: less is killed": {
		{run: "seq 200 >file; $W sh -c 'echo $$ >pid-$WINDOW; exec less file'", shows: "^1\n2\n(?s).*29\nfile$"},
		{kill: true, shows: prompt}, {run: modes, shows: sane},
	},
	"bash: raw modes, and killed": {
		{run: "$W sh -c 'echo $$ >pid-$WINDOW; stty raw -echo; echo up; exec sleep 1000'", shows: "up"},
		{kill: true, shows: prompt}, {run: modes, shows: sane},
	},
	"modes that are left on purpose": {
		{run: "$W stty -echo", shows: prompt}, {text: modes, shows: "(?s)-echo\n" + ready + "$"},
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
				// It reads once the shell has its prompt, so the test sees it stop after that.
				reader := "echo $$ >pid-$WINDOW; until [ -e prompted ]; do sleep 0.1; done; read x; echo got-$x"
				if err := os.WriteFile(s.path("reader"), []byte(reader), 0o600); err != nil {
					t.Fatal(err)
				}
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
					if killed = killed || st.kill; killed { // a shell prints this on a line of its own
						continue
					}
					for end := time.Now().Add(30 * time.Second); !equal(); time.Sleep(20 * time.Millisecond) {
						if time.Now().After(end) {
							t.Fatalf("after %+v the screen is\n%s\n--- and without repolock\n%s", st, got, want)
						}
					}
				}
				s.until("the lock to be released", hang, func() bool { return len(s.locks()) == 0 })
			})
		}
	}
}

// do does a step, and waits for its output.
func (w *window) do(st step) {
	w.s.t.Helper()
	switch {
	case st.kill:
		_ = syscall.Kill(w.s.pid("pid-"+w.name), syscall.SIGKILL)
	case st.stops:
		if err := os.WriteFile(w.s.path("prompted"), nil, 0o600); err != nil {
			w.s.t.Fatal(err)
		}
		pid := w.s.pid("pid-" + w.name)
		w.s.until("a stop", hang, func() bool {
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

// locks returns the files of the repository.
func (s *site) locks() (files []string) {
	for _, path := range s.left() {
		if info, err := os.Stat(path); err == nil && !info.IsDir() && !strings.Contains(path, "/.") {
			files = append(files, path)
		}
	}
	return files
}
