//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/dir"
)

// TestNoFileInAPlaceOfLocks: a file that repolock writes isn't put in a place of locks, of this
// repository or another, whether a flag names it, the environment or the configuration file. That is
// refused before anything is written, locked or run.
func TestNoFileInAPlaceOfLocks(t *testing.T) {
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
		{64, "--html: ", "torture --duration 1s --html FILE"}, // 78 is a violation
		{64, "--log: ", "torture --duration 1s --log FILE"},
		{64, "--html: ", "torture --rounds 1 --with {} --html FILE"},
		{64, "--log: ", "torture --rounds 1 --with {} --log FILE"},
	} {
		t.Run(c.command, func(t *testing.T) {
			top := t.TempDir()
			at := func(name string) string { return filepath.Join(top, name) }
			write(t, at("repo/index/lock.shared/x"), "a lock")
			write(t, at("other/index/lock.exclusive"), "another lock")
			write(t, at("audit"), `{"event":"lock_acquired","timestamp":"2026-03-07T01:00:00Z"}`+"\n")
			must(t, os.Symlink("other/index/lock.exclusive", at("link")))
			t.Setenv("REPOLOCK_REPO", at("repo"))
			for _, name := range []string{"repo/index/lock.exclusive", "repo/index/lock.shared/log", "repo/index/locks/photos/lock.exclusive", "other/index/lock.exclusive", "link"} {
				t.Setenv("REPOLOCK_AUDIT", "")
				args := strings.Fields(strings.NewReplacer("FILE", at(name), "DIR", top, "RAN", at("ran"), "PID", fmt.Sprint(os.Getpid())).Replace(c.command))
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
				var out, errs bytes.Buffer
				code := run(args, &out, &errs)
				if code != c.code || !strings.HasPrefix(errs.String(), "repolock: error: "+c.says) || !strings.Contains(errs.String(), " is a place of locks: name a file elsewhere\n") {
					t.Errorf("%s: exit code %d\n%s", name, code, errs.String())
				}
				if diff := cmp.Diff(before, tree(t, top)); diff != "" || out.Len() > 0 {
					t.Errorf("%s: files changed:\n%s%s", name, diff, out.String())
				}
			}
		})
	}
}

// TestPlacesOfLocks: each object of a lock is in a place where repolock writes no other file.
func TestPlacesOfLocks(t *testing.T) {
	for _, name := range []string{"", "photos"} {
		repo := t.TempDir()
		s, err := dir.Open(t.Context(), repo, dir.Options{})
		must(t, err)
		l, err := replock.New(s, replock.Options{Name: name})
		must(t, err)
		for _, mode := range []replock.Mode{replock.Shared, replock.Exclusive} {
			var lock *replock.Lock
			if mode == replock.Shared {
				lock, err = l.Shared(t.Context(), "backup")
			} else {
				lock, err = l.Exclusive(t.Context(), "prune", replock.Fence())
			}
			must(t, err)
			objects := tree(t, repo)
			if len(objects) == 0 {
				t.Error("no objects")
			}
			for object := range objects {
				if regular.Outside(filepath.Join(repo, object)) == nil {
					t.Errorf("%s can be overwritten", object)
				}
			}
			must(t, lock.Release(t.Context()))
		}
	}
}

// TestRegularFilesOnly: a FIFO in place of a file, or a link to one, is refused before a lock
// is acquired or a command started, and stays. (If a command waits for the other end, the test
// hangs.)
func TestRegularFilesOnly(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", newDesk(t).run)
	for _, c := range []struct {
		code int
		args []string // FIFO stands for one
	}{
		{78, []string{"backup", "--metrics-file", "FIFO", "--", "touch", "RAN"}},
		{78, []string{"backup", "--audit", "FIFO", "--", "touch", "RAN"}},
		{78, []string{"break-lock", "--yes", "--audit", "FIFO"}},
		{78, []string{"--config", "FIFO", "backup", "--", "touch", "RAN"}},
		{64, []string{"torture", "--duration", "1s", "--log", "FIFO"}},
		{64, []string{"torture", "--duration", "1s", "--html", "FIFO"}},
		{78, []string{"history", "LOG", "--svg", "FIFO"}},
		{78, []string{"acquire", "--shared", "--for-pid", "none", "--log", "FIFO"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			must(t, errors.Join(os.Mkdir(at("repo"), 0o700), syscall.Mkfifo(at("fifo"), 0o600), os.Symlink("fifo", at("link"))))
			write(t, at("log"), "")
			t.Setenv("REPOLOCK_REPO", at("repo"))
			for _, name := range []string{"fifo", "link"} {
				replace := strings.NewReplacer("FIFO", at(name), "LOG", at("log"), "RAN", at("ran"))
				var args []string
				for _, a := range c.args {
					args = append(args, replace.Replace(a))
				}
				var out, errs bytes.Buffer
				if code := run(args, &out, &errs); code != c.code || !strings.Contains(errs.String(), at(name)+" is a FIFO") {
					t.Errorf("%s: exit code %d\n%s", name, code, errs.String())
				}
				if info, err := os.Stat(at(name)); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
					t.Errorf("%s was replaced: %v", name, err)
				}
			}
			if _, err := os.Stat(at("ran")); err == nil {
				t.Error("the command ran")
			}
			if left := tree(t, at("repo")); len(left) > 0 {
				t.Errorf("a lock was taken: %v", left)
			}
		})
	}
}

// TestWhereABadPathIsFrom: an error of a file to be written names the flag, the variable or the
// configuration file that the path is from, and the hint says what to correct there. The keeper knows
// it, too.
func TestWhereABadPathIsFrom(t *testing.T) {
	d := newDesk(t)
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
		{"", "", "--audit: ", "backup --audit /nonexistent/l -- true", nothingRun + flagHint},
		{defaults("audit"), "/nonexistent/e", "--audit: ", "backup --audit /nonexistent/l -- true", nothingRun + flagHint},
		{defaults("audit"), "/nonexistent/l", "REPOLOCK_AUDIT: ", "prune -- true", nothingRun + "; correct the path, or unset REPOLOCK_AUDIT\n"},
		{defaults("audit"), "", "audit in " + file + ": ", "backup -- true", nothingRun + fileHint},
		{defaults("metrics-file"), "", "metrics-file in " + file + ": ", "backup -- true", nothingRun + fileHint},
		{"[repositories.x]\nurl = '" + d.repo + "'\naudit = '/nonexistent/l'\n", "", "audit in " + file + ": ", "-r x backup -- true", nothingRun + fileHint},
		{"", "/nonexistent/l", "REPOLOCK_AUDIT: ", "break-lock --yes", noneBroken + "; correct the path, or unset REPOLOCK_AUDIT\n"},
		{defaults("audit"), "", "audit in " + file + ": ", "break-lock --yes", noneBroken + fileHint},
		{"", "/nonexistent/l", "REPOLOCK_AUDIT: ", "acquire --shared", "no lock was taken; correct the path, or unset REPOLOCK_AUDIT\n"},
		{defaults("metrics-file"), "", "metrics-file in " + file + ": ", "acquire --shared", "no lock was taken" + fileHint},
	} {
		write(t, file, c.config)
		os.Unsetenv("REPOLOCK_AUDIT")
		if c.variable != "" {
			t.Setenv("REPOLOCK_AUDIT", c.variable)
		}
		code, _, stderr := d.repolock(strings.Fields(c.args)...)
		if code != exitUnfit || !strings.HasPrefix(stderr, "repolock: error: "+c.says) || !strings.Contains(stderr, "/nonexistent") || !strings.HasSuffix(stderr, "\nrepolock: hint: "+c.hint) {
			t.Errorf("%s, REPOLOCK_AUDIT=%s, with %q: exit code %d\n%s", c.args, c.variable, c.config, code, stderr)
		}
	}
}
