//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
