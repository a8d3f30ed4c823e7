//go:build unix

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/docblocks"
)

// TestRefusedFiles: repolock refuses to write to a FIFO, or through a link to one, whether a flag, the environment or
// the configuration file names the file. It refuses before it locks or runs anything, and writes no more than an empty
// log. (If it opens the FIFO, the test hangs.)
func TestRefusedFiles(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", newDesk(t).run)
	for _, c := range []struct {
		code    int
		says    string
		command string // FILE stands for one
	}{
		{78, "--metrics-file: ", "backup --metrics-file FILE -- touch RAN"},
		{78, "--metrics-file: ", "backup --audit DIR/log --metrics-file FILE -- touch RAN"},
		{78, "--audit: ", "prune --audit FILE -- touch RAN"},
		{78, "--audit: ", "break-lock --yes --audit FILE"},
		{78, "--log: ", "acquire --shared --for-pid PID --log FILE"},
		{78, "--audit: ", "acquire --shared --for-pid PID --log DIR/log --audit FILE"},
		{78, "--metrics-file: ", "acquire --shared --for-pid PID --log DIR/log --metrics-file FILE"},
		{78, "REPOLOCK_AUDIT: ", "AUDIT=FILE backup -- touch RAN"},
		{78, "audit in ", "--config audit backup -- touch RAN"},
		{78, "metrics-file in ", "--config metrics-file backup -- touch RAN"},
		{78, "--svg: ", "history DIR/audit --svg FILE"},
		{64, "--log: ", "torture --duration 1s --log FILE"}, // 78 is a violation
	} {
		t.Run(c.command, func(t *testing.T) {
			top := t.TempDir()
			at := func(name string) string { return filepath.Join(top, name) }
			write(t, at("repo/index/lock.shared/x"), "a lock")
			write(t, at("audit"), `{"event":"lock_acquired","timestamp":"2026-03-07T01:00:00Z"}`+"\n")
			write(t, at("log"), "")
			assert.OK(t, fault.Join(syscall.Mkfifo(at("fifo"), 0o600), os.Symlink("fifo", at("link"))))
			t.Setenv("REPOLOCK_REPO", at("repo"))
			for _, name := range []string{"fifo", "link"} {
				t.Setenv("REPOLOCK_AUDIT", "")
				var args []string
				for _, arg := range strings.Fields(c.command) {
					args = append(args, strings.NewReplacer("FILE", at(name), "DIR", top, "RAN", at("ran"), "PID", fmt.Sprint(os.Getpid())).Replace(arg))
				}
				if audit, ok := strings.CutPrefix(args[0], "AUDIT="); ok {
					t.Setenv("REPOLOCK_AUDIT", audit)
					args = args[1:]
				}
				if args[0] == "--config" {
					os.Unsetenv("REPOLOCK_AUDIT")
					write(t, at("config.toml"), "[defaults]\n"+args[1]+" = '"+at(name)+"'\n")
					args[1] = at("config.toml")
				}
				before := tree(t, top)
				code, stdout, stderr := call(args...)
				assert.That(t, code == c.code && strings.HasPrefix(stderr, "repolock: error: "+c.says) && strings.Contains(stderr, at(name)+" is a FIFO"),
					"%s: exit code %d\n%s", name, code, stderr)
				diff := cmp.Diff(before, tree(t, top))
				assert.That(t, diff == "" && stdout == "", "%s: files changed:\n%s%s", name, diff, stdout)
			}
			code, _, stderr := call("--config", at("fifo"), "backup", "--", "touch", at("ran"))
			assert.That(t, code == fault.ExitUnfit && strings.Contains(stderr, at("fifo")+" is a FIFO"), "--config: exit code %d\n%s", code, stderr)
		})
	}
}

// TestWhereABadPathIsFrom: the error of a file to be written names the flag, the variable or the configuration file that
// has the path, and the hint says what to correct there. So does the error of a keeper.
func TestWhereABadPathIsFrom(t *testing.T) {
	repo := t.TempDir()
	t.Setenv("REPOLOCK_REPO", repo)
	t.Setenv("XDG_RUNTIME_DIR", newDesk(t).run)
	file := filepath.Join(t.TempDir(), "c.toml")
	t.Setenv("REPOLOCK_CONFIG", file)
	defaults := func(key string) string { return "[defaults]\n" + key + " = '/nonexistent/l'\n" }
	const flagHint, fileHint = "; correct the path, or leave out --audit\n", "; correct the configuration file\n"
	for _, c := range []struct {
		config, variable string
		says             string
		args             string
		hint             string
	}{
		{"", "", "--audit: ", "backup --audit /nonexistent/l -- true", "nothing was run" + flagHint},
		{defaults("audit"), "/nonexistent/e", "--audit: ", "backup --audit /nonexistent/l -- true", "nothing was run" + flagHint},
		{defaults("audit"), "/nonexistent/l", "REPOLOCK_AUDIT: ", "prune -- true", "nothing was run" + "; correct the path, or unset REPOLOCK_AUDIT\n"},
		{defaults("audit"), "", "audit in " + file + ": ", "backup -- true", "nothing was run" + fileHint},
		{defaults("metrics-file"), "", "metrics-file in " + file + ": ", "backup -- true", "nothing was run" + fileHint},
		{"[repositories.x]\nurl = '" + repo + "'\naudit = '/nonexistent/l'\n", "", "audit in " + file + ": ", "-r x backup -- true", "nothing was run" + fileHint},
		{"", "/nonexistent/l", "REPOLOCK_AUDIT: ", "break-lock --yes", "no lock was broken" + "; correct the path, or unset REPOLOCK_AUDIT\n"},
		{defaults("audit"), "", "audit in " + file + ": ", "break-lock --yes", "no lock was broken" + fileHint},
		{"", "/nonexistent/l", "REPOLOCK_AUDIT: ", "acquire --shared", "no lock was taken; correct the path, or unset REPOLOCK_AUDIT\n"},
		{defaults("metrics-file"), "", "metrics-file in " + file + ": ", "acquire --shared", "no lock was taken" + fileHint},
	} {
		write(t, file, c.config)
		os.Unsetenv("REPOLOCK_AUDIT")
		if c.variable != "" {
			t.Setenv("REPOLOCK_AUDIT", c.variable)
		}
		code, _, stderr := call(strings.Fields(c.args)...)
		assert.That(t, code == fault.ExitUnfit && strings.HasPrefix(stderr, "repolock: error: "+c.says) && strings.Contains(stderr, "/nonexistent") && strings.HasSuffix(stderr, "\nrepolock: hint: "+c.hint),
			"%s, REPOLOCK_AUDIT=%s, with %q: exit code %d\n%s", c.args, c.variable, c.config, code, stderr)
	}
}

// TestScriptsDoc runs each script of docs/scripts.md unchanged, as a file.
func TestScriptsDoc(t *testing.T) {
	page, err := docblocks.Read("../../docs/scripts.md")
	assert.OK(t, err)
	blocks := page.Fenced["sh"]
	says := []string{
		`(?s)^first step\nVERDICT .*\nlive +shared +nightly .*\nsecond step\ndone\n$`,
		`(?s)^beside it\n.*refused with 75\n$`,
		`^alone: exclusive\n$`,
	}
	assert.Need(t, len(blocks) == len(says), "%d scripts, and %d are tested", len(blocks), len(says))
	for i, block := range blocks {
		d := newDesk(t)
		file := filepath.Join(t.TempDir(), "script")
		assert.OK(t, os.WriteFile(file, []byte(block), 0o700))
		out, err := d.command("sh", file).Output()
		assert.That(t, err == nil && regexp.MustCompile(says[i]).Match(out), "%v\n%s", err, out)
		d.free()
	}
}

// TestConfigurationPage: the example of the page is a valid file with every key, and its
// commands work.
func TestConfigurationPage(t *testing.T) {
	raw, err := os.ReadFile("../../docs/configuration.md")
	assert.OK(t, err)
	page, err := docblocks.Read("../../docs/configuration.md")
	assert.OK(t, err)
	block := func(kind string) string {
		found := page.Fenced[kind]
		assert.Need(t, len(found) == 1, "%d blocks of %s", len(found), kind)
		return found[0]
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	write(t, file, block("toml"))
	p, err := reader.Parse([]string{"--config", file, "repos"}, io.Discard, io.Discard)
	assert.OK(t, err)
	loaded := p.File
	assert.That(t, loaded.Repo == "prod" && len(loaded.Repositories) == 3, "%+v", loaded)
	there := loaded.Defaults.Values()
	for _, r := range loaded.Repositories {
		maps.Copy(there, r.Values())
	}
	for _, name := range fileKeys() {
		assert.That(t, there[name] != nil && strings.Contains(string(raw), "`"+name+"`"), "%s isn't in the example, or not explained", name)
	}

	// A directory replaces the bucket and the paths that need privileges.
	for _, d := range []string{"repo", "bin"} {
		assert.OK(t, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	text := regexp.MustCompile(`"s3:[^"]*"`).ReplaceAllString(block("toml"), `"`+filepath.Join(dir, "repo")+`"`)
	text = regexp.MustCompile(`"/var/.*/`).ReplaceAllString(text, `"`+dir+"/")
	write(t, file, text)
	assert.OK(t, os.WriteFile(filepath.Join(dir, "bin", "restic"), []byte("#!/bin/sh\necho $REPOLOCK_REPO $*\n"), 0o700))
	cmd := exec.Command("sh", "-e", "-c", block("sh"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "REPOLOCK_CONFIG="+file, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	for _, shown := range []string{"prod    " + dir + "/repo", "read from " + file, dir + "/repo backup /home\n", "no locks\n"} {
		assert.That(t, err == nil && strings.Contains(string(out), shown), "no %q: %v\n%s", shown, err, out)
	}
	_, err = os.Stat(filepath.Join(dir, "repolock.jsonl"))
	assert.That(t, err == nil, "%v", err)
}

// TestTooLittleRoom: a limit that Go's runtime would answer with a stack trace is an error before anything is begun.
func TestTooLittleRoom(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("REPOLOCK_REPO", dir)
	t.Setenv("XDG_RUNTIME_DIR", newDesk(t).run)
	defer func(was func() error) { procgroup.CheckRoom = was }(procgroup.CheckRoom)
	procgroup.CheckRoom = func() error { return fmt.Errorf("%w: ulimit -u allows none", procgroup.ErrNoRoom) }
	for _, args := range [][]string{{"backup", "--", "/nonexistent"}, {"acquire", "--shared", "--for-pid", "none"}} {
		code, _, stderr := callHere(args...)
		assert.That(t, code == 78 && strings.Contains(stderr, "its guard: ulimit -u allows none\n") && strings.Contains(stderr, fault.NoRoom.Advice), "%q: %d: %s", args, code, stderr)
	}
	assert.Equal(t, len(tree(t, dir)), 0)
}
