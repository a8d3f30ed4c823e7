package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestBadInputIsOneErrorAndChangesNothing: each wrong input is one error with the right exit
// code. Nothing is lost, deleted, left behind or run.
func TestBadInputIsOneErrorAndChangesNothing(t *testing.T) {
	long := strings.Repeat("x", 5000)
	body := func(fields string) string {
		return `{"operation":"backup","holder":"h (pid 1)","acquired_at":"2026-03-07T09:00:00Z",` + fields + `}`
	}
	ran := []string{"--", "touch", "RAN"}
	for _, c := range []struct {
		name string
		args []string // REPO and RAN stand for paths
		file string   // the body at index/lock.shared/x, if not empty
		code int
		says string
	}{
		// Command lines.
		{"nothing but flags", []string{"-r", "REPO"}, "", 64, "no command is given"},
		{"no such command", []string{"lock"}, "", 64, "isn't a command"},
		{"no such flag", []string{"backup", "--locks", "--", "touch", "RAN"}, "", 64, "unknown flag --locks"},
		{"no command to run", []string{"-r", "REPO", "backup"}, "", 64, "command"},
		{"nothing after --", []string{"-r", "REPO", "backup", "--"}, "", 64, "command"},
		{"empty command", []string{"-r", "REPO", "backup", "--", ""}, "", 64, "no command"},
		{"no mode", append([]string{"-r", "REPO", "run"}, ran...), "", 64, "--shared, --exclusive or --no-lock"},
		{"two modes", append([]string{"-r", "REPO", "run", "--shared", "--exclusive"}, ran...), "", 64, "together"},
		{"no repository", append([]string{"backup"}, ran...), "", 64, "--repo"},
		{"empty repository", append([]string{"-r", "", "backup"}, ran...), "", 64, "--repo"},
		{"ttl too short", append([]string{"-r", "REPO", "backup", "--ttl", "9s"}, ran...), "", 64, "10s"},
		{"ttl too long", append([]string{"-r", "REPO", "backup", "--ttl", "25h"}, ran...), "", 64, "24h"},
		{"ttl negative", append([]string{"-r", "REPO", "backup", "--ttl=-1m"}, ran...), "", 64, "ttl"},
		{"ttl zero", append([]string{"-r", "REPO", "backup", "--ttl", "0s"}, ran...), "", 64, "ttl"},
		{"ttl no duration", append([]string{"-r", "REPO", "backup", "--ttl", "soon"}, ran...), "", 64, "ttl"},
		{"ttl missing", []string{"-r", "REPO", "backup", "--ttl"}, "", 64, "ttl"},
		{"on-lost unknown", append([]string{"-r", "REPO", "backup", "--on-lost", "hope"}, ran...), "", 64, "pause"},
		{"resume-for negative", append([]string{"-r", "REPO", "backup", "--resume-for=-1s"}, ran...), "", 64, "resume-for"},
		{"exit code too large", append([]string{"-r", "REPO", "backup", "-E", "256"}, ran...), "", 64, "held-exit-code"},
		{"exit code negative", append([]string{"-r", "REPO", "backup", "-E=-1"}, ran...), "", 64, "held-exit-code"},
		{"exit code no number", append([]string{"-r", "REPO", "backup", "-E", "x"}, ran...), "", 64, "held-exit-code"},
		{"name with slash", append([]string{"-r", "REPO", "--name", "../x", "backup"}, ran...), "", 64, "lock name"},
		{"name upper case", append([]string{"-r", "REPO", "--name", "Photos", "backup"}, ran...), "", 64, "lock name"},
		{"name too long", append([]string{"-r", "REPO", "--name", long, "backup"}, ran...), "", 64, "lock name"},
		{"name ends in hyphen", append([]string{"-r", "REPO", "--name", "a-", "backup"}, ran...), "", 64, "lock name"},
		{"operation empty", append([]string{"-r", "REPO", "run", "--shared", "--operation", ""}, ran...), "", 64, "operation"},
		{"operation too long", append([]string{"-r", "REPO", "run", "--shared", "--operation", long}, ran...), "", 64, "operation"},
		{"metadata without =", append([]string{"-r", "REPO", "backup", "--metadata", "x"}, ran...), "", 64, "metadata"},
		{"metadata too large", append([]string{"-r", "REPO", "backup", "--metadata", "k=" + long}, ran...), "", 64, "metadata"},
		{"break-lock without terminal", []string{"-r", "REPO", "break-lock"}, body(`"expires_at":"2026-03-07T09:01:00Z"`), 64, "--yes"},
		{"control characters", []string{"\x1b[2J\n"}, "", 64, "isn't a command"},
		{"status of nothing", []string{"status"}, "", 64, "--repo"},
		{"status with arguments", []string{"-r", "REPO", "status", "x"}, "", 64, "unexpected argument"},
		// Commands.
		{"command not found", []string{"-r", "REPO", "backup", "--", "no-such-command"}, "", 127, "not found"},
		{"command not found by path", []string{"-r", "REPO", "backup", "--", "/no/such/command"}, "", 127, "not found"},
		{"command is a directory", []string{"-r", "REPO", "backup", "--", "/"}, "", 126, "can't be executed"},
		{"command not executable", []string{"-r", "REPO", "backup", "--", "REPO/data"}, "", 126, "can't be executed"},
		{"bare command not found", []string{"run", "--no-lock", "--", "no-such-command"}, "", 127, "not found"},
		{"bare command not executable", []string{"run", "--no-lock", "--", "REPO/data"}, "", 126, "can't be executed"},
		// Repositories.
		{"unknown scheme", append([]string{"-r", "gopher://user:secret@host/x", "backup"}, ran...), "", 64, "gopher"},
		{"foreign host", append([]string{"-r", "file://host/srv/repo", "backup"}, ran...), "", 64, "host"},
		{"bad escape", append([]string{"-r", "file:///a%zz", "backup"}, ran...), "", 64, "URL"},
		{"query", append([]string{"-r", "file:///a?password=secret", "backup"}, ran...), "", 64, "URL"},
		{"no such directory", append([]string{"-r", "REPO/none", "backup"}, ran...), "", 69, "no such directory"},
		{"not a directory", append([]string{"-r", "REPO/data", "backup"}, ran...), "", 69, "directory"},
		{"path too long", append([]string{"-r", "/" + long, "backup"}, ran...), "", 69, "its name is too long"},
		{"NUL in path", append([]string{"-r", "a\x00b", "backup"}, ran...), "", 64, "URL"},
		{"status of no such directory", []string{"-r", "REPO/none", "status"}, "", 69, "no such directory"},
		{"break-lock of no such directory", []string{"-r", "REPO/none", "break-lock", "--yes"}, "", 69, "no such directory"},
		// Lock bodies that keep a prune out.
		{"blank body", append([]string{"-r", "REPO", "prune"}, ran...), " ", 75, "unreadable shared lock"},
		{"10 MiB body", append([]string{"-r", "REPO", "prune"}, ran...), strings.Repeat("x", 10<<20), 75, "larger than"},
		{"truncated body", append([]string{"-r", "REPO", "prune"}, ran...), `{"operation":"back`, 75, "unreadable shared lock"},
		{"wrong types", append([]string{"-r", "REPO", "prune"}, ran...), `{"operation":1,"expires_at":true}`, 75, "unreadable shared lock"},
		{"no times", append([]string{"-r", "REPO", "prune"}, ran...), `{"operation":"x","holder":"y"}`, 75, "expires_at"},
		{"control characters in body", append([]string{"-r", "REPO", "prune"}, ran...), body(`"expires_at":"9999-12-31T23:59:59Z","state":"\u001b"`), 75, "by backup on h (pid 1)"},
		{"year 9999", append([]string{"-r", "REPO", "prune"}, ran...), body(`"expires_at":"9999-12-31T23:59:59Z"`), 75, "(pid 1)"},
		{"year 10000", append([]string{"-r", "REPO", "prune"}, ran...), body(`"expires_at":"10000-01-01T00:00:00Z"`), 75, "expires_at"},
		{"encrypted body", append([]string{"-r", "REPO", "prune"}, ran...), "\x01\x02\x03", 75, "unknown"},
		{"negative ttl", append([]string{"-r", "REPO", "prune"}, ran...), body(`"expires_at":"9999-12-31T23:59:59Z","ttl_seconds":-5`), 75, "ttl_seconds"},
		{"zstd garbage", append([]string{"-r", "REPO", "prune"}, ran...), "\x28\xb5\x2f\xfd garbage", 75, "unreadable shared lock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("REPOLOCK_REPO", "")
			dir := t.TempDir()
			repo := filepath.Join(dir, "repo")
			write(t, filepath.Join(repo, "data"), "a backup")
			if c.file != "" {
				write(t, filepath.Join(repo, "index", "lock.shared", "x"), c.file)
			}
			before := tree(t, dir)
			args := make([]string, len(c.args))
			for i, a := range c.args {
				args[i] = strings.NewReplacer("REPO", repo, "RAN", filepath.Join(dir, "ran")).Replace(a)
			}
			for _, json := range []bool{false, true} {
				if json {
					args = append([]string{"--json"}, args...)
				}
				var out, err bytes.Buffer
				start := time.Now()
				if code := run(args, &out, &err); code != c.code {
					t.Errorf("exit code %d, want %d", code, c.code)
				}
				if took := time.Since(start); took > 3*time.Minute {
					t.Errorf("took %v", took)
				}
				checkError(t, json, err.String(), c.says)
				if out.Len() > 0 {
					t.Errorf("on stdout: %q", out.String())
				}
			}
			if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
				t.Errorf("files changed:\n%s", diff)
			}
		})
	}
}

func checkError(t *testing.T, json bool, stderr, says string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	if !strings.Contains(lines[0], says) {
		t.Errorf("doesn't say %q: %s", says, stderr)
	}
	if json {
		if len(lines) != 1 || !strings.HasPrefix(lines[0], `{"error":`) {
			t.Errorf("is not one object: %s", stderr)
		}
	} else if !strings.HasPrefix(lines[0], "repolock: error: ") || len(lines) > 2 || len(lines) == 2 && !strings.HasPrefix(lines[1], "repolock: hint: ") {
		t.Errorf("is not one error with its hint: %s", stderr)
	}
	if len(lines[0]) > 8000 || strings.Contains(stderr, "goroutine") || strings.Contains(stderr, "secret") {
		t.Errorf("too long, a stack, or a secret: %.500s", stderr)
	}
	if strings.ContainsFunc(strings.ReplaceAll(stderr, "\n", ""), func(r rune) bool { return r < ' ' }) {
		t.Errorf("control characters: %q", stderr)
	}
}
