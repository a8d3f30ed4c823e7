//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/docblocks"
	"github.com/repolock/repolock/internal/torture"
)

// TestTortureInterrupted: an interrupted torture prints its result so far, and deletes its
// objects.
func TestTortureInterrupted(t *testing.T) {
	repo := t.TempDir()
	cmd := exec.Command("repolock", "-r", repo, "torture", "--duration", "1h")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	assert.OK(t, cmd.Start())
	until(t, "it has written", func() bool {
		data, _ := filepath.Glob(filepath.Join(repo, "index/locks/torture-*/data/*/*"))
		return len(data) > 0
	})
	assert.OK(t, cmd.Process.Signal(os.Interrupt))
	code := exitOf(t, cmd.Wait())
	assert.That(t, code == fault.ExitSignal+int(syscall.SIGINT), "exit code %d", code)
	assert.That(t, strings.Contains(stdout.String(), "no violation found in ") && stderr.String() == "repolock: error: interrupt\n",
		"%s%s", stdout.String(), stderr.String())
	left := tree(t, repo)
	assert.That(t, len(left) == 0, "left %v", left)
}

// TestTortureProgress: progress is one line on a terminal, and elsewhere, with --verbose, a
// line now and then.
func TestTortureProgress(t *testing.T) {
	counts := torture.Counts{Shared: 3, Exclusive: 4, Violations: 5}
	for _, test := range []struct {
		terminal    terminal
		global      global
		line, lines int // prefixes of an overwritten line, and whole lines
	}{
		{erasingTerminal, global{}, sparse, 0}, {noTerminal, global{}, 0, 1}, {dumbTerminal, global{}, 0, 2},
		{erasingTerminal, global{Quiet: true}, 0, 0}, {noTerminal, global{Quiet: true}, 0, 0}, {erasingTerminal, global{JSON: true}, 0, 0}, {dumbTerminal, global{JSON: true}, 0, 0},
	} {
		var out bytes.Buffer
		l := tortureShow{reporter: &reporter{stderr: &out, global: test.global, terminal: func() terminal { return test.terminal }}}
		for range sparse {
			l.progress(counts)
		}
		l.live("")
		line, lines := strings.Count(out.String(), erase), strings.Count(out.String(), "\n")
		assert.That(t, line == test.line && lines == test.lines && (line+lines == 0 || strings.Contains(out.String(), "7 locks (3 shared, 4 exclusive)")),
			"%+v: %q", test, out.String())
	}
}

// TestTortureEndsAtOnce: the first Ctrl-C of a torture on a store that never answers is
// acknowledged, the second ends it and names what might be left.
func TestTortureEndsAtOnce(t *testing.T) {
	tmp := t.TempDir()
	s := onScreen(t, 24, 120, []string{"TERM=xterm", "TMPDIR=" + tmp}, "-r", silentStore(t), "torture", "--duration", "1h")
	for _, says := range []string{"0 locks (", "interrupted: "} {
		s.until(says)
		s.types(ctrlC)
	}
	status := s.end()
	assert.That(t, status.Signal() == syscall.SIGINT, "it ended with %v", status)
	shown := strings.Join(strings.Fields(s.shown), " ")
	assert.That(t, strings.Contains(shown, "error: interrupt: nothing was judged; locks and objects might be left below index/locks/torture-"),
		"shown: %q", s.shown)
	files := tree(t, tmp)
	assert.That(t, len(files) == 0, "left %v", files)
}

// TestTortureDoc runs each command of docs/torture.md unchanged, but for a shorter time.
func TestTortureDoc(t *testing.T) {
	t.Parallel()
	page, err := docblocks.Read("../../docs/torture.md")
	assert.OK(t, err)
	commands := page.Lines()
	if len(commands) != 3 {
		t.Fatalf("%d commands found", len(commands))
	}
	for _, c := range commands {
		t.Run(c, func(t *testing.T) {
			t.Parallel()
			want, kept := 0, 0
			if strings.Contains(c, "--no-lock") {
				want, kept = fault.ExitUnfit, 2 // the evidence is kept
			}
			// On a busy machine little happens in a second.
			for duration := time.Second; ; duration *= 2 {
				cmd := exec.Command("sh", "-c", c+" --duration "+duration.String())
				cmd.Dir = t.TempDir()
				tmp := t.TempDir()
				cmd.Env = append(os.Environ(), "REPOLOCK_REPO="+cmd.Dir, "TMPDIR="+tmp)
				out, err := cmd.CombinedOutput()
				code := exitOf(t, err)
				if tooShort := code == fault.ExitUnavailable || code == 0; tooShort && code != want && duration < hang {
					continue
				}
				assert.That(t, code == want && strings.Contains(string(out), "acquisitions"), "exit code %d\n%s", code, out)
				files := tree(t, tmp)
				assert.That(t, len(files) == kept, "kept %v", files)
				_, err = os.Stat(filepath.Join(cmd.Dir, "picture.html"))
				assert.That(t, (err == nil) == strings.Contains(c, "--html"), "%v", err)
				return
			}
		})
	}
}

// TestTortureExit: torture exits with 0 only after a verdict without a violation.
func TestTortureExit(t *testing.T) {
	interrupted, cancel := context.WithCancelCause(t.Context())
	cancel(session.Signalled(syscall.SIGTERM))
	failed := errors.New("a disk is full")
	for _, test := range []struct {
		ctx    context.Context
		result judge.Result
		failed error
		code   int
	}{
		{t.Context(), judge.NotFound, nil, 0},
		{t.Context(), judge.Violated, nil, fault.ExitUnfit},
		{t.Context(), judge.Unknown, nil, fault.ExitUnjudged},
		{t.Context(), "", nil, fault.ExitUnjudged},
		{t.Context(), judge.Unknown, torture.ErrUnjudged, fault.ExitUnjudged},
		{t.Context(), judge.NotFound, failed, fault.ExitFailed},
		{t.Context(), judge.Violated, failed, fault.ExitUnfit},
		{t.Context(), judge.Unknown, &fault.Error{Class: fault.TortureFailed, Err: errors.New("x"), Exit: fault.ExitPermission}, fault.ExitPermission},
		{t.Context(), judge.Unknown, fault.New(fault.TortureFailed, "x"), fault.ExitUnavailable},
		{interrupted, judge.NotFound, nil, fault.ExitSignal + int(syscall.SIGTERM)},
		{interrupted, judge.Violated, nil, fault.ExitUnfit},
	} {
		code, err := (&tortureResult{Verdict: test.result}).exit(test.ctx, test.failed)
		if err != nil {
			code = fault.Exit(err)
		}
		assert.That(t, code == test.code, "%s, %v: exit code %d, want %d", test.result, test.failed, code, test.code)
	}
}

// TestTortureLeft: torture counts the objects that it leaves, if it could list them, and says why.
// JSON has their keys.
func TestTortureLeft(t *testing.T) {
	for _, test := range []struct {
		left []string
		why  string
		says string
	}{
		{nil, "", ""},
		{nil, "no answer", "objects might be left below p/, which could not be listed; remove them by hand: no answer\n"},
		{[]string{"p/a"}, "", "an object is left below p/; remove it by hand: it came back\n"},
		{[]string{"p/a", "p/b"}, "refused", "2 objects are left below p/; remove them by hand: refused\n"},
	} {
		r := torture.Report{Left: test.left}
		if test.why != "" {
			r.LeftBecause = errors.New(test.why)
		}
		result := newTortureResult(r, "p/")
		var text, json bytes.Buffer
		assert.OK(t, result.print(&reporter{stdout: &text}))
		assert.OK(t, result.print(&reporter{stdout: &json, global: global{JSON: true}}))
		assert.That(t, strings.Contains(text.String(), test.says) && strings.Contains(text.String(), "left below") == (test.says != "") &&
			strings.Contains(json.String(), test.why) && strings.Contains(json.String(), `"p/a"`) == (test.left != nil),
			"%+v: %s%s", test, text.String(), json.String())
	}
}
