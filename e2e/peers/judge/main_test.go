//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/test/assert"
)

// TestMain: this program is the witness of its own trials.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == witnessCommand {
		os.Exit(witness(os.Args[2:]))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or every program ends a second late
	os.Exit(m.Run())
}

// command runs a command line.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

// TestCommand: the command prints its verdict and exits with it.
func TestCommand(t *testing.T) {
	place(t, "trials")
	for name, c := range map[string]struct {
		args   []string
		code   int
		stdout []string
		stderr string
	}{
		"a lock that holds": {
			[]string{"--with", "flock DIR/lock {}", "--shared-with", "flock -s DIR/lock {}", "--lease", "1s", "--clients", "2", "--rounds", "1", "--faults", "kill-all,stop-both"},
			0, []string{
				`^FAULT +ROUNDS +LOCKS +REFUSED +TWO IN +WENT ON +NEVER FREED +FREE AFTER$`, `^kill-all +1 +[2-9][0-9]* +0 +0 +- +0 +(-|[0-9.]+m?s)$`,
				`^stop-both +1 `, `^no violation found in 2 rounds with [0-9]+ acquisitions$`,
			}, "locks; rounds: 1 kill-all, 1 stop-both\n",
		},
		"flock -o, which closes the file before the child runs": {
			[]string{"--with", "flock -o DIR/lock {}", "--lease", "1m", "--clients", "2", "--rounds", "1", "--faults", "kill-wrapper", "--log", "DIR/events.log"},
			fault.ExitUnfit, []string{
				`^kill-wrapper: c0-1, exclusive, held the lock together with c1-2, exclusive, for at least `, `^c0-1 exclusive \|\.*[#-].*!.*#`,
				`^c1-2 exclusive \| *\.*[#-]*#`, `^! kill-wrapper \(the wrapper is "flock"\)$`, `^# writes under the lock `,
				`^VIOLATION: two holders at once in 1 of 1 rounds; in 0 rounds the lock of an ended holder was never freed$`,
			}, "",
		},
		"JSON, of a lock that excludes nothing": {
			[]string{"--json", "--with", `sh -c "true; {}"`, "--clean", "touch DIR/cleaned", "--lease", "1m", "--clients", "2", "--rounds", "1", "--faults", "long"},
			fault.ExitUnfit, []string{`"verdict": "violation"`, `"fault": "long"`, `"two_in": 1`, `"name": "overlap"`, `"pictures": \[`}, "",
		},
		"a program that doesn't exist": {[]string{"--with", "nowhere {}"}, fault.ExitUnavailable, nil, "nowhere can't be started"},
		"a clean that fails":           {[]string{"--with", "flock DIR/lock {}", "--clean", `sh -c "echo broken >&2; exit 3"`}, fault.ExitUnjudged, nil, "exit status 3: broken"},
		"help":                         {[]string{"--help"}, 0, []string{`--shared-with=COMMAND`, `kill-wrapper`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var args []string
			for _, a := range c.args {
				args = append(args, strings.ReplaceAll(a, "DIR", dir))
			}
			code, stdout, stderr := command(t, args...)
			assert.That(t, code == c.code && strings.Contains(stderr, c.stderr), "exit code %d: %s%s", code, stdout, stderr)
			for _, want := range c.stdout {
				assert.That(t, regexp.MustCompile("(?m)"+want).MatchString(stdout), "no %s:\n%s", want, stdout)
			}
			assert.That(t, (stdout == "") == (c.stdout == nil), "%s", stdout)
			switch {
			case strings.Contains(name, "JSON"):
				assert.That(t, json.Valid([]byte(stdout)), "%s", stdout)
				assert.Is(t, assert.Err(os.Stat(filepath.Join(dir, "cleaned"))), nil)
			case strings.Contains(name, "-o"):
				log, err := os.ReadFile(filepath.Join(dir, "events.log"))
				assert.That(t, err == nil && strings.Contains(string(log), `"kind":"fault"`), "%v: %s", err, log)
			}
		})
	}
}

// TestUsage: a wrong command line is one error, and nothing is run.
func TestUsage(t *testing.T) {
	place(t, "trials")
	for line, says := range map[string]string{
		"":                                         "missing flags: --with=COMMAND {}",
		"--with|":                                  `--with "": it is empty`,
		"--with|true":                              "has no {}: write it in place of the command that runs under the lock",
		"--with|flock lock {}|--clean|rm {}":       "runs under no lock: write it without {}",
		"--with|mkdir lock; {}":                    "no shell runs it",
		"--with|flock lock {}|repo":                "unexpected argument repo",
		"--with|flock lock {}|--ttl|20s":           "unknown flag --ttl",
		"--with|flock lock {}|--lease|1ms":         "--lease 1ms: must be at least 1s",
		"--with|flock lock {}|--rounds|0":          "--rounds 0: must be at least 1",
		"--with|flock lock {}|--rounds=-1":         "--rounds -1: must be at least 1",
		"--with|flock lock {}|--clients|1":         "--clients 1: must be from 2 to 100",
		"--with|flock lock {}|--duration|0s":       "--duration 0s: must be positive",
		"--with|flock lock {}|--faults|kill,none":  "--faults kill: must be of none, long,",
		"--with|flock lock {}|--log|nowhere/x.log": "--log: open nowhere/x.log: no such file or directory",
	} {
		var args []string
		if line != "" {
			args = strings.Split(line, "|")
		}
		code, stdout, stderr := command(t, args...)
		assert.That(t, code == fault.ExitUsage && stdout == "" && strings.Count(stderr, "\n") == 1 && strings.Contains(stderr, says), "%s: exit code %d: %s%s", line, code, stdout, stderr)
	}
}

// TestExitCode: the exit code is 0 only after a verdict without a violation.
func TestExitCode(t *testing.T) {
	failed := errors.New("a disk is full")
	for _, test := range []struct {
		verdict     judge.Result
		interrupted bool
		failed      error
		code        int
	}{
		{judge.NotFound, false, nil, 0},
		{judge.Violated, false, nil, fault.ExitUnfit},
		{judge.Unknown, false, nil, fault.ExitUnjudged},
		{"", false, nil, fault.ExitUnjudged},
		{judge.NotFound, false, failed, fault.ExitFailed},
		{judge.Violated, false, failed, fault.ExitUnfit},
		{judge.Unknown, false, notAcquired("x"), fault.ExitUnavailable},
		{judge.NotFound, true, nil, fault.ExitSignal + 2},
		{judge.Violated, true, nil, fault.ExitUnfit},
	} {
		code := exitCode(test.verdict, test.interrupted, test.failed)
		assert.That(t, code == test.code, "%+v: exit code %d", test, code)
	}
}

// TestInterrupted: an interrupted trial prints its verdict so far.
func TestInterrupted(t *testing.T) {
	place(t, "trials")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out strings.Builder
	progress := writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
	code := run(ctx, []string{"--with", "flock " + t.TempDir() + "/lock {}", "--lease", "1s", "--clients", "2", "--faults", "long"}, &out, progress)
	assert.That(t, code == fault.ExitSignal+2 && strings.Contains(out.String(), "no violation found in 1 rounds"), "exit code %d: %s", code, out.String())
}
