//go:build linux && programs

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/repolock/repolock/internal/test/assert"
)

// completions are lines, with the text that TAB must make of them or list, and the text that
// it must not.
var completions = []struct{ line, want, never string }{
	{"repolock st", "repolock status ", "torture-child"},
	{"repolock backup --if-held ", "fail skip wait", ""},
	{"repolock backup --if-held=s", "--if-held=skip", ""},
	{"repolock -r p", "repolock -r prod ", ""},
	{"repolock --repo=h", "repolock --repo=home ", ""},
	{"repolock --name backup stat", "repolock --name backup status ", ""},
	{"repolock -qr p", "repolock -qr prod ", ""},
	{"repolock backup --audit some", "--audit somefile ", ""},
	{"repolock backup --metrics-file=some", "--metrics-file=somefile ", ""},
	{"repolock run --also b", "--also beads:", "beads: "},
	{"repolock run --also=tow", "--also=tower-fleet:", "fleet: "},
	{"repolock history some", "history somefile ", ""},
	{"repolock backup -- repol", "-- repolock ", ""},
	{"repolock backup --ttl=2m -- cat some", "-- cat somefile ", ""},
	{"repolock backup -- cat --if-he", "-- cat --if-he", "--if-held"},
}

// described are lines, with what a list of completions says of one of them.
var described = []struct{ line, want, never string }{
	{"repolock re", "Release the lock of acquire", ""},
	{"repolock backup --if-", "What to do when the store can't be reached", ""},
}

// completing returns a directory with a file in it, and an environment with a configuration.
func completing(t *testing.T) (dir string, env []string) {
	t.Helper()
	s := newSite(t)
	s.touch("somefile")
	s.write("config.toml", "[repositories.prod]\nurl = '/x'\n[repositories.home]\nurl = '/y'\n")
	return s.dir, []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + s.dir, "TERM=xterm", "LC_ALL=C.UTF-8", "PS1=" + ready + " ", "REPOLOCK_CONFIG=" + s.path("config.toml")}
}

// TestShells types lines and a TAB to bash and zsh, each on a terminal.
func TestShells(t *testing.T) {
	for name, shell := range map[string]struct{ args, setup []string }{
		"bash": {[]string{"bash", "--norc", "--noprofile", "-i"}, []string{
			"bind 'set show-all-if-ambiguous on'", "bind 'set enable-bracketed-paste off'", "bind 'set bell-style none'",
			"source <(repolock completion bash)",
		}},
		"zsh": {[]string{"zsh", "-f", "-i"}, []string{
			"unsetopt prompt_sp zle_bracketed_paste beep; zle_bracketed_paste=(); bindkey -e; autoload -Uz compinit && compinit -u -D",
			"source <(repolock completion zsh)",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, env := completing(t)
			cmd := exec.Command(shell.args[0], shell.args[1:]...)
			cmd.Dir, cmd.Env = dir, env
			terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 200})
			assert.OK(t, err)
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				terminal.Close()
			}()
			defer time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
			screen := &screen{t: t, terminal: terminal}
			screen.until(ready)
			for _, line := range shell.setup {
				screen.obeys(line)
			}
			for _, c := range slices.Concat(completions, described) {
				screen.types(c.line + "\t")
				screen.until(c.want)
				screen.types("\x15")
				if shown := screen.obeys(""); c.never != "" && strings.Contains(shown, c.never) {
					t.Errorf("%q: %q", c.line, shown)
				}
			}
		})
	}
}

// screen is a terminal that a shell runs on. A test types only when the shell is ready:
// otherwise the system's line editor would get the keys.
type screen struct {
	t        *testing.T
	terminal *os.File
	shown    string
	asked    int
}

var (
	escapes = regexp.MustCompile("\x1b(\\[[0-9;?]*[a-zA-Z]|[=>])")
	spaces  = regexp.MustCompile(`\s+`)
)

func (s *screen) types(text string) {
	s.t.Helper()
	assert.OK(s.t, assert.Err(s.terminal.WriteString(text)))
}

// until reads until a text is shown. Any white space matches any other.
func (s *screen) until(text string) {
	s.t.Helper()
	buf := make([]byte, 4096)
	for !strings.Contains(spaces.ReplaceAllString(escapes.ReplaceAllString(s.shown, ""), " "), text) {
		n, err := s.terminal.Read(buf)
		if err != nil {
			s.t.Fatalf("no %q: %v: %q", text, err, s.shown)
		}
		s.shown += string(buf[:n])
	}
}

// obeys types a command to the shell and waits until it has run. It returns the text from
// before and meanwhile.
func (s *screen) obeys(line string) string {
	s.t.Helper()
	s.asked++
	s.types(fmt.Sprintf("%s\recho d''one-%d\r", line, s.asked))
	s.until(fmt.Sprintf(" done-%d %s", s.asked, ready)) // differs from the line as typed
	shown := s.shown
	s.shown = ""
	return shown
}

// TestFish asks fish itself.
func TestFish(t *testing.T) {
	dir, env := completing(t)
	asked := func(line string) string {
		t.Helper()
		cmd := exec.Command("fish", "-N", "-c", `repolock completion fish | source; complete -C $argv[1]`, line)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	for _, c := range described {
		if out := asked(c.line); !strings.Contains(out, c.want) {
			t.Errorf("%q: %q, want %q in it", c.line, out, c.want)
		}
	}
	for _, c := range completions {
		var words []string
		for line := range strings.Lines(asked(c.line)) {
			word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			words = append(words, word)
		}
		// The wanted text without its part that is on the line already.
		want := strings.Fields(c.want)
		if c.line[len(c.line)-1] != ' ' {
			want = want[len(want)-1:]
		}
		if c.never != "" && strings.HasPrefix(c.never, "--") {
			want = nil
		}
		assert.That(t, slices.Equal(words, want), "%q: %q, want %q", c.line, words, want)
	}
}

// codeLines are lines of the text on URLs, which stay lines.
const codeLines = "Amazon S3, or what speaks S3\n         minio://HOST:PORT/BUCKET/PREFIX MinIO\n"

// TestManualRenders: the readers of manual pages don't complain, and show a flag as it is
// typed.
func TestManualRenders(t *testing.T) {
	manual, err := exec.Command(filepath.Join(bin, "repolock"), "man").Output()
	assert.OK(t, err)
	for line, shows := range map[string]string{
		"mandoc -Tlint -Wwarning":     "",
		"groff -man -ww -Tutf8 -z":    "",
		"mandoc -Tascii":              "--if-unreachable=fail|run",
		"groff -man -Tutf8 -P-c -ww":  "--if-unreachable=fail|run",
		"mandoc -Tascii -Owidth=100":  codeLines,
		"groff -man -Tascii -P-c -ww": codeLines,
	} {
		args := strings.Fields(line)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdin = bytes.NewReader(manual)
		out, err := cmd.CombinedOutput()
		if err != nil || shows == "" && len(out) > 0 || !strings.Contains(overstrike.ReplaceAllString(string(out), ""), shows) {
			t.Errorf("%s: %v: %.300s", line, err, out)
		}
	}
}

// overstrike matches bold text as it is printed.
var overstrike = regexp.MustCompile(".\b")
