//go:build linux && programs

package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
)

var (
	// listed matches a command in the help of a program.
	listed = regexp.MustCompile(`(?m)^( {2,})([a-z][a-z0-9-]+)(?:  +[A-Za-z(].*| [<[-].*)?$`)
	// described matches a flag in the help of restic, rclone or Kopia: its letter, its name, and its value.
	described = regexp.MustCompile(`(?m)^ +(?:-(\w), )?--(\[no-\])?([a-zA-Z0-9][\w.-]*)(\[?=\S+| [^ ]\S*)?(?:  .*)?$`)
)

// TestInstalled: the table has every command and every flag that the programs list in their help, so that a new one is
// noticed: Debian's restic, Borg and rclone, and the restic and the Kopia that the go.mod files of e2e pin.
func TestInstalled(t *testing.T) {
	bin := t.TempDir()
	build := func(dir, pkg string) string {
		cmd := exec.Command("go", "build", "-o", bin+"/", pkg)
		cmd.Dir = filepath.Join("../../../e2e", dir)
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		assert.Need(t, err == nil, "%v: %s", err, out)
		return filepath.Join(bin, filepath.Base(pkg))
	}
	for _, c := range []struct {
		program string
		from    string // the line after which the help lists the commands
		indent  string
		least   int
	}{
		{"restic", "Available Commands:", "  ", 20},
		{build("peers/restic", "github.com/restic/restic/cmd/restic"), "Available Commands:", "  ", 25},
		{"borg", "required arguments:", "    ", 24}, {"rclone", "Available Commands:", "  ", 45},
		{build("kopia", "github.com/kopia/kopia"), "Commands", "  ", 10},
	} {
		help := func(words ...string) string {
			out, err := exec.Command(c.program, append(words, "--help")...).CombinedOutput()
			assert.Need(t, err == nil, "%s %q: %v\n%s", c.program, words, err, out)
			return string(out)
		}
		p := Find(filepath.Base(c.program))
		top := help()
		_, list, ok := strings.Cut(top, c.from)
		assert.Need(t, ok, "the help of %s has no %q:\n%s", c.program, c.from, top)
		n := 0
		var path []string // of Kopia, whose help has its commands as a tree
		lines := listed.FindAllStringSubmatch(list, -1)
		for i, m := range lines {
			if p == kopia {
				path = append(path[:min(len(path), len(m[1])/2-1)], m[2])
				leaf := i+1 == len(lines) || len(lines[i+1][1]) <= len(m[1])
				assert.That(t, !leaf || p.match(path) != nil, "kopia has a command that the table lacks: %q", path)
			}
			if m[1] != c.indent {
				continue
			}
			n++
			command := slices.IndexFunc(p.Commands, func(c Command) bool { return strings.Fields(c.Words)[0] == m[2] })
			assert.That(t, command >= 0 || m[2] == "flags", "%s has a command that the table lacks: %s", c.program, m[0])
			if command >= 0 && p == restic {
				p.hasFlags(t, help(m[2]), p.Commands[command].flags)
			}
		}
		assert.That(t, n >= c.least, "%s: only %d commands are found in\n%s", c.program, n, top)
		switch p {
		case rclone:
			p.hasFlags(t, help("help", "flags"))
		case kopia:
			for _, command := range []string{"snapshot create", "snapshot expire", "maintenance run", "restore", "snapshot verify", "snapshot fix", "mount", "policy set", "policy edit", "policy delete", "policy import", "cache set"} {
				p.hasFlags(t, help(strings.Fields(command)...))
			}
		case restic:
			p.hasFlags(t, top)
		}
	}
}

// hasFlags checks that the table has the flags of a help, with a value or without one.
func (p *Program) hasFlags(t *testing.T, help string, more ...string) {
	known := flagSet(append([]string{p.flags}, more...)...)
	for _, m := range described.FindAllStringSubmatch(help, -1) {
		f, ok := known[m[3]]
		assert.That(t, ok, "%s has a flag that the table lacks: %s", p.Name, m[0])
		valued := m[4] != "" && m[3] != "verbose" && m[4] != " count" && !strings.HasPrefix(m[4], "[=")
		assert.That(t, !ok || f.valued == valued, "%s: in the table --%s has a value: %v, and in the help: %s", p.Name, m[3], f.valued, m[0])
		if m[1] != "" && ok {
			assert.That(t, known["-"+m[1]].valued == valued, "%s: -%s is another flag in the table: %s", p.Name, m[1], m[0])
		}
	}
}

// TestReplaced: rclone replaces no existing file by a line that shares the lock, and by a dry run. It does replace a
// single file in spite of --immutable.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	source, place := filepath.Join(dir, "source"), filepath.Join(dir, "data")
	write := func(name, text string) {
		assert.OK(t, os.MkdirAll(filepath.Dir(name), 0o755))
		assert.OK(t, os.WriteFile(name, []byte(text), 0o644))
	}
	s := System{IsDir: func(path string) bool { return path == source }}
	for line, replaced := range map[string]bool{
		"copy --immutable source/f data": true, "copyto --immutable source/f data/f": true, "copy --immutable source data": false,
		"copy --ignore-existing source/f data": false, "copyto --ignore-existing source/f data/f": false, "copy --ignore-existing source data": false,
		"copyto --ignore-existing --no-check-dest source/f data/f": true, "copy --dry-run source data": false, "copyto -n source/f data/f": false,
		"moveto --dry-run source/f data/f": false, "sync --dry-run source data": false, "purge --dry-run data": false, "delete -n data": false,
		"deletefile -n data/f": false, "touch --dry-run data/f": false, "rmdirs -n data": false, "dedupe --dry-run data": false, "bisync --dry-run --resync source data": false,
	} {
		write(filepath.Join(source, "f"), "a new text")
		write(filepath.Join(place, "f"), "old")
		words := append([]string{"rclone", "--config", os.DevNull}, strings.Fields(line)...)
		for i, word := range words {
			if strings.HasPrefix(word, "source") || strings.HasPrefix(word, "data") {
				words[i] = filepath.Join(dir, word)
			}
		}
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())
		out, _ := cmd.CombinedOutput() // it fails if it refuses to replace
		is, err := os.ReadFile(filepath.Join(place, "f"))
		assert.That(t, (err != nil || string(is) != "old") == replaced, "%s: replaced: %v\n%s", line, !replaced, out)
		l, err := Read(words, nil)
		assert.Need(t, err == nil, "%s: %v", line, err)
		l.Look(s)
		assert.That(t, (l.Mode == replock.Exclusive) == replaced, "%s: the mode is %v", line, l.Mode)
	}
}
