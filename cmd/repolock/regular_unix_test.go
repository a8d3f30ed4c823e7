//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

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
			if err := errors.Join(os.Mkdir(at("repo"), 0o700), syscall.Mkfifo(at("fifo"), 0o600), os.Symlink("fifo", at("link"))); err != nil {
				t.Fatal(err)
			}
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
