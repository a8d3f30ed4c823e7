//go:build unix

package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
)

// screen is a terminal on which a command runs, and what it has shown.
type screen struct {
	t     *testing.T
	cmd   *exec.Cmd
	pty   *os.File
	shown string
}

// onScreen starts a repolock on a terminal, with these variables beside ours.
func onScreen(t *testing.T, rows, columns uint16, env []string, args ...string) *screen {
	t.Helper()
	cmd := exec.Command("repolock", args...)
	cmd.Env = append(os.Environ(), env...)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: columns})
	assert.OK(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		terminal.Close()
	})
	return &screen{t: t, cmd: cmd, pty: terminal}
}

// read waits for more, and reports whether there can be still more.
func (s *screen) read() bool {
	buf := make([]byte, 1024)
	n, err := s.pty.Read(buf)
	s.shown += string(buf[:n])
	return err == nil
}

// until waits until a text is shown.
func (s *screen) until(text string) {
	s.t.Helper()
	for !strings.Contains(s.shown, text) {
		if !s.read() {
			s.t.Fatalf("no %q: %q", text, s.shown)
		}
	}
}

func (s *screen) types(text string) {
	s.t.Helper()
	_, err := s.pty.WriteString(text)
	assert.OK(s.t, err)
}

const ctrlC = "\x03"

// end waits until the command has ended, and returns how.
func (s *screen) end() syscall.WaitStatus {
	for s.read() {
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// TestBreakLockAsks: on a terminal break-lock lists the locks, and asks before it deletes them, and no others. With
// --json it prints one object when the answer is no.
func TestBreakLockAsks(t *testing.T) {
	for answer, deleted := range map[string]bool{"y": true, "yes": true, "n": false, "": false, "what": false} {
		repo := t.TempDir()
		lock := filepath.Join(repo, "index", "lock.shared", "x")
		write(t, lock, "\x1b[2J garbage")
		s := onScreen(t, 24, 80, nil, "-r", repo, "break-lock")
		s.until("[y/N]")
		assert.That(t, strings.Contains(s.shown, "unreadable") && !strings.Contains(s.shown, "\x1b"), "shown: %q", s.shown)
		later := filepath.Join(repo, "index", "lock.shared", "later")
		write(t, later, "garbage")
		s.types(answer + "\n")
		want := map[bool]int{true: 0, false: fault.ExitAborted}[deleted]
		assert.Equal(t, s.end().ExitStatus(), want, answer)
		_, err := os.Stat(lock)
		assert.That(t, (err != nil) == deleted, "%q: deleted: %v", answer, err != nil)
		_, err = os.Stat(later)
		assert.That(t, err == nil, "%q: a lock that wasn't shown: %v", answer, err)
		if deleted {
			continue
		}
		var stdout, stderr bytes.Buffer
		cmd := exec.Command("repolock", "--json", "-r", repo, "break-lock")
		terminal, tty, err := pty.Open()
		assert.OK(t, err)
		_, err = terminal.WriteString(answer + "\n")
		assert.OK(t, err)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, &stdout, &stderr
		code := exitOf(t, cmd.Run())
		terminal.Close()
		tty.Close()
		_, object, _ := strings.Cut(stderr.String(), "[y/N] ")
		assert.That(t, code == fault.ExitAborted && stdout.Len() == 0 && strings.HasPrefix(object, `{"error":"declined","message":"nothing was deleted","exit_code":1,`) && strings.Count(object, "\n") == 1,
			"exit code %d\n%s%s", code, stdout.String(), stderr.String())
	}
}

// TestLockInDoubt: a lock counts as held if only one clock says that it has expired, and an
// acquirer without --wait can't watch it for its whole ttl. The message says that a person can
// end it, at a terminal.
func TestLockInDoubt(t *testing.T) {
	repo := t.TempDir()
	lock := filepath.Join(repo, "index", "lock.intent", "x")
	write(t, lock, `{"operation":"prune","holder":"far","expires_at":"2100-01-01T00:00:00Z","id":"0123","ttl_seconds":86400}`)
	old := time.Now().Add(-48 * time.Hour)
	assert.OK(t, os.Chtimes(lock, old, old))
	for _, wait := range []string{"0s", "1s"} {
		code, _, stderr := call("-r", repo, "prune", "--wait", wait, "--", "true")
		for _, want := range []string{"prune on far, last seen ", "perhaps stale", "repolock break-lock --stale", "--wait 24h1m "} {
			assert.That(t, code == fault.ExitHeld && strings.Contains(stderr, want), "%d, without %q: %s", code, want, stderr)
		}
	}
	code, _, stderr := call("-r", repo, "break-lock", "--stale", "--yes")
	_, err := os.Stat(lock)
	assert.That(t, err == nil && code == 0 && strings.Contains(stderr, "left alone: prune on far, "), "%d, %v: %s", code, err, stderr)
	s := onScreen(t, 24, 80, nil, "-r", repo, "break-lock", "--stale")
	s.types("y\n")
	status := s.end()
	assert.That(t, status == 0 && strings.Contains(s.shown, "doubtful"), "%v: %s", status, s.shown)
	code, _, stderr = call("-r", repo, "prune", "--", "true")
	assert.That(t, code == 0, "after break-lock --stale: %d: %s", code, stderr)
}

// TestWaitingLine: the waiting line is overwritten in place, fits the terminal, and disappears
// when the wait ends. Ctrl-C ends the wait and removes the ticket.
func TestWaitingLine(t *testing.T) {
	t.Parallel()
	repo := t.TempDir()
	holder := exec.Command("repolock", "-r", repo, "backup", "--ttl", "1h", "--", "sh", "-c", "echo up; exec sleep 100000")
	up, err := holder.StdoutPipe()
	assert.OK(t, err)
	assert.OK(t, holder.Start())
	defer func() {
		_ = holder.Process.Signal(os.Interrupt)
		_ = holder.Wait()
	}()
	_, err = up.Read(make([]byte, 3))
	assert.OK(t, err)

	s := onScreen(t, 24, 70, []string{"TERM=xterm"}, "-r", repo, "prune", "--wait", "forever", "--", "true")
	drawn := regexp.MustCompile(`waiting \S+ for backup on `)
	for len(drawn.FindAllString(s.shown, -1)) < 4 && s.read() {
	}
	s.types(ctrlC)
	if status := s.end(); status.Signal() != syscall.SIGINT { // a shell that gets 130 ends its script as well
		t.Errorf("it ended with %v", status)
	}
	lines := strings.Split(s.shown, erase)
	assert.That(t, len(lines) >= 4 && !strings.Contains(strings.Join(lines[:len(lines)-1], ""), "\n"), "shown: %q", s.shown)
	for _, line := range lines[:len(lines)-1] {
		line, _, _ = strings.Cut(line, "\r")
		n := len([]rune(line))
		assert.That(t, n <= 69, "%d columns: %q", n, line)
	}
	last := lines[len(lines)-1]
	assert.That(t, last == "repolock: error: interrupt; nothing was run\r\n", "the last that is shown: %q", last)
	entries, err := os.ReadDir(filepath.Join(repo, "index", "lock.intent"))
	assert.That(t, err != nil || len(entries) == 0, "left: %v", entries)
}

// TestWatch: status --watch redraws the locks in place, no wider or longer than the terminal, and a
// failure with its cause first.
func TestWatch(t *testing.T) {
	repo := t.TempDir()
	s := onScreen(t, 6, 60, []string{"TERM=xterm"}, "-r", repo, "status", "--watch", "--interval", "100ms")
	s.until("no locks\r\n\x1b[2A" + erase + "20")
	for i := range 5 {
		write(t, filepath.Join(repo, "index", "lock.shared", string(rune('a'+i))), "garbage")
	}
	s.until("… and ")
	s.shown = ""
	s.until("\x1b[5A" + erase + "20")
	for _, line := range strings.Split(s.shown, "\r\n") {
		line = line[strings.LastIndex(line, "\r")+1:] // the escape sequences
		n := len([]rune(line))
		assert.That(t, n <= 60, "%d columns: %q", n, line)
	}
	assert.OK(t, os.Rename(repo, repo+".away"))
	s.until("the store can't be read: not found: the repository's dir") // the cause comes first
	s.types(ctrlC)
	status := s.end()
	assert.That(t, status.Signal() == syscall.SIGINT, "it ended with %v", status)
}

// TestSilentStoreIsSaid: on a terminal every command that asks a store which never answers says
// what it waits for, in whole lines on a terminal that can't erase one. A Ctrl-C during a wait for
// the lock is acknowledged, before the store has answered.
func TestSilentStoreIsSaid(t *testing.T) {
	t.Parallel()
	const prefix = "repository s3://bucket/prefix"
	repo := silentStore(t)
	for _, c := range []struct {
		term, args string
		says       []string // Ctrl-C is typed after each
	}{
		{"xterm", "status", []string{"reading the locks, 1s: " + prefix}},
		{"xterm", "break-lock --yes", []string{"reading the locks, 1s: " + prefix}},
		{"xterm", "prune --dry-run -- true", []string{"reading the locks, 1s: " + prefix}},
		{"xterm", "backup --wait 1h -- true", []string{"s: " + prefix}},
		{"xterm", "doctor", []string{"s: whether it can be reached"}},
		{"xterm", "prune -- true", []string{"acquiring the lock, ", "deleting the lock that might have been written"}},
		{"xterm", "acquire --shared", []string{"acquiring the lock, ", "deleting the lock that might have been written"}},
		{"dumb", "prune -- true", []string{"repolock: acquiring the lock: " + prefix}},
		{"", "acquire --shared --wait 1h", []string{"repolock: acquiring the lock: " + prefix}},
		{"dumb", "status", []string{"repolock: reading the locks: " + prefix}},
		{"", "status", []string{"repolock: reading the locks: " + prefix}},
		{"dumb", "doctor", []string{"repolock: doctor: whether it can be reached\r\n"}},
		{"", "torture", []string{"repolock: 0s: 0 locks ("}},
	} {
		t.Run(c.args+" "+c.term, func(t *testing.T) {
			t.Parallel()
			env := []string{"TERM=" + c.term, "XDG_RUNTIME_DIR=" + t.TempDir(), "TMPDIR=" + t.TempDir()}
			s := onScreen(t, 24, 120, env, append([]string{"-r", repo}, strings.Fields(c.args)...)...)
			for _, text := range c.says {
				s.until(text)
				s.types(ctrlC)
			}
			assert.That(t, c.term == "xterm" || !strings.Contains(s.shown, "\x1b"), "shown: %q", s.shown)
		})
	}
}

// silentStore returns a repository on a server that takes connections, and never answers.
func silentStore(t *testing.T) (repo string) {
	t.Helper()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and no process reads
	assert.OK(t, err)
	t.Cleanup(func() { silent.Close() })
	return "s3://bucket/prefix?region=us-east-1&endpoint=http://" + silent.Addr().String()
}

// TestDoctorProgress: on a terminal doctor shows what it tries, and erases it.
func TestDoctorProgress(t *testing.T) {
	t.Parallel()
	s := onScreen(t, 24, 80, []string{"TERM=xterm"}, "-r", t.TempDir(), "doctor", "--verbose")
	status := s.end()
	assert.That(t, status == 0 && strings.Contains(s.shown, "doctor: list after write") && strings.Contains(s.shown, erase) && strings.Contains(s.shown, "fit"),
		"%v: %q", status, s.shown)
}
