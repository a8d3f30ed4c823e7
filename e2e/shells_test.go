//go:build linux && programs

package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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

// described are lines, with a description that the list of completions must show.
var described = []struct{ line, want, never string }{
	{"repolock re", "Release the lock of acquire", ""},
	{"repolock backup --if-", "What to do when the store can't be reached", ""},
}

// completing returns a site with a file in it, and an environment with a configuration.
func completing(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.touch("somefile")
	s.write("config.toml", "[repositories.prod]\nurl = '/x'\n[repositories.home]\nurl = '/y'\n")
	s.env = []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + s.dir, "TERM=xterm", "LC_ALL=C.UTF-8", "REPOLOCK_CONFIG=" + s.path("config.toml"), "REPOLOCK_REPO="}
	return s
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
			w := completing(t).terminal(name, 200, 50, shell.args)
			w.shows("^" + ready + "$")
			shown := w.record()
			for _, line := range shell.setup {
				w.obeys(line, shown)
			}
			for _, c := range slices.Concat(completions, described) {
				before := len(shown())
				w.tmux("send-keys", "-l", c.line+"\t")
				w.until(c.want, shown, before)
				w.key("C-u")
				w.obeys("", shown)
				after := shown()[before:]
				assert.That(t, c.never == "" || !strings.Contains(after, c.never), "%q: %q", c.line, after)
			}
		})
	}
}

var (
	escapes = regexp.MustCompile("\x1b(\\[[0-9;?]*[a-zA-Z]|[=>])")
	spaces  = regexp.MustCompile(`\s+`)
)

// until waits until a text is shown after this many bytes. Any white space matches any other.
func (w *window) until(text string, shown func() string, after int) {
	w.s.t.Helper()
	w.s.until(fmt.Sprintf("%q", text), func() bool {
		return strings.Contains(spaces.ReplaceAllString(escapes.ReplaceAllString(shown()[after:], ""), " "), text)
	})
}

// obeys types a command to the shell and waits until it has run. A test types only when the shell is ready:
// otherwise the system's line editor would get the keys.
func (w *window) obeys(line string, shown func() string) {
	w.s.t.Helper()
	w.typed++
	before := len(shown())
	w.tmux("send-keys", "-l", fmt.Sprintf("%s\recho d''one-%d\r", line, w.typed))
	w.until(fmt.Sprintf(" done-%d %s", w.typed, ready), shown, before) // differs from the line as typed
}

// TestFish asks fish itself.
func TestFish(t *testing.T) {
	s := completing(t)
	asked := func(line string) string {
		t.Helper()
		cmd := exec.Command("fish", "-N", "-c", `repolock completion fish | source; complete -C $argv[1]`, line)
		cmd.Dir, cmd.Env = s.dir, s.environ()
		return assert.Output(t, cmd)
	}
	for _, c := range described {
		out := asked(c.line)
		assert.That(t, strings.Contains(out, c.want), "%q: %q, want %q in it", c.line, out, c.want)
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
const codeLines = "Amazon S3, or a server that speaks S3\n         minio://HOST:PORT/BUCKET/PREFIX MinIO\n"

// TestManualRenders: the readers of manual pages don't complain, and show flags as they are typed.
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
		assert.That(t, err == nil && (shows != "" || len(out) == 0) && strings.Contains(overstrike.ReplaceAllString(string(out), ""), shows), "%s: %v: %.300s", line, err, out)
	}
}

// overstrike matches the first half of a bold letter.
var overstrike = regexp.MustCompile(".\b")
