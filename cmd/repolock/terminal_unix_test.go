//go:build unix

package main

import (
	"errors"
	"fmt"
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
)

// TestBreakLockAsks: on a terminal break-lock lists the locks, and asks before it deletes
// them.
func TestBreakLockAsks(t *testing.T) {
	for answer, deleted := range map[string]bool{"y": true, "yes": true, "n": false, "": false, "what": false} {
		t.Run(answer, func(t *testing.T) {
			repo := t.TempDir()
			lock := filepath.Join(repo, "index", "lock.shared", "x")
			write(t, lock, "\x1b[2J garbage")
			bin, err := exec.LookPath("repolock") // testscript.Main put it there
			must(t, err)
			cmd := exec.Command(bin, "-r", repo, "break-lock")
			terminal, err := pty.Start(cmd)
			must(t, err)
			defer terminal.Close()
			var shown strings.Builder
			buf := make([]byte, 1024)
			for !strings.Contains(shown.String(), "[y/N]") {
				n, err := terminal.Read(buf)
				if err != nil {
					t.Fatalf("%v: %s", err, shown.String())
				}
				shown.Write(buf[:n])
			}
			if !strings.Contains(shown.String(), "unreadable") || strings.Contains(shown.String(), "\x1b") {
				t.Errorf("shown: %q", shown.String())
			}
			if _, err := terminal.WriteString(answer + "\n"); err != nil {
				t.Fatal(err)
			}
			code := 0
			if err := cmd.Wait(); err != nil {
				code = err.(*exec.ExitError).ExitCode()
			}
			if _, err := os.Stat(lock); (err != nil) != deleted {
				t.Errorf("deleted: %v, want %v", err != nil, deleted)
			}
			if want := map[bool]int{true: 0, false: exitAborted}[deleted]; code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
		})
	}
}

// TestWaitingLine: the waiting line is overwritten in place, fits the terminal, and disappears
// when the wait ends. Ctrl-C ends the wait and removes the ticket.
func TestWaitingLine(t *testing.T) {
	t.Parallel()
	bin, err := exec.LookPath("repolock")
	must(t, err)
	repo := t.TempDir()
	holder := exec.Command(bin, "-r", repo, "backup", "--ttl", "1h", "--", "sh", "-c", "echo up; exec sleep 100000")
	up, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	must(t, err)
	defer func() {
		_ = holder.Process.Signal(os.Interrupt)
		_ = holder.Wait()
	}()
	if _, err := up.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(bin, "-r", repo, "prune", "--wait", "forever", "--", "true")
	cmd.Env = append(os.Environ(), "TERM=xterm")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 70})
	must(t, err)
	defer terminal.Close()
	var shown strings.Builder
	buf := make([]byte, 1024)
	read := func() bool {
		n, err := terminal.Read(buf)
		shown.Write(buf[:n])
		return err == nil
	}
	drawn := regexp.MustCompile(`waiting \S+ for backup on `)
	for len(drawn.FindAllString(shown.String(), -1)) < 4 && read() {
	}
	if _, err := terminal.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	for read() {
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", err) // a shell that gets 130 ends its script as well
	}
	lines := strings.Split(shown.String(), erase)
	if len(lines) < 4 || strings.Contains(strings.Join(lines[:len(lines)-1], ""), "\n") {
		t.Errorf("shown: %q", shown.String())
	}
	for _, line := range lines[:len(lines)-1] {
		line, _, _ = strings.Cut(line, "\r")
		if n := len([]rune(line)); n > 69 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if last := lines[len(lines)-1]; last != "repolock: error: interrupt; nothing was run\r\n" {
		t.Errorf("the last that is shown: %q", last)
	}
	if entries, err := os.ReadDir(filepath.Join(repo, "index", "lock.intent")); err == nil && len(entries) > 0 {
		t.Errorf("left: %v", entries)
	}
}

// TestWatch: status --watch redraws the locks in place, no wider or longer than the terminal, and a
// failure with its cause first.
func TestWatch(t *testing.T) {
	bin, err := exec.LookPath("repolock")
	must(t, err)
	repo := t.TempDir()
	watch := exec.Command(bin, "-r", repo, "status", "--watch", "--interval", "100ms")
	watch.Env = append(os.Environ(), "TERM=xterm")
	terminal, err := pty.StartWithSize(watch, &pty.Winsize{Rows: 6, Cols: 60})
	must(t, err)
	defer terminal.Close()
	var shown strings.Builder
	buf := make([]byte, 1024)
	until := func(text string) {
		t.Helper()
		for !strings.Contains(shown.String(), text) {
			n, err := terminal.Read(buf)
			if err != nil {
				t.Fatalf("no %q: %v: %q", text, err, shown.String())
			}
			shown.Write(buf[:n])
		}
	}
	until("no locks\r\n\x1b[2A" + erase + "20")
	for i := range 5 {
		write(t, filepath.Join(repo, "index", "lock.shared", string(rune('a'+i))), "garbage")
	}
	until("… and ")
	shown.Reset()
	until("\x1b[5A" + erase + "20")
	for _, line := range strings.Split(shown.String(), "\r\n") {
		line = line[strings.LastIndex(line, "\r")+1:] // the escape sequences
		if n := len([]rune(line)); n > 60 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	must(t, os.Rename(repo, repo+".away"))
	until("the store can't be read: not found: the repository's dir") // the cause comes first
	if _, err := terminal.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = terminal.Read(buf)
	}
	var exit *exec.ExitError
	if err := watch.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", err)
	}
}

// TestSilentStoreIsSaid: on a terminal every command that asks a store which never answers says
// what it waits for.
func TestSilentStoreIsSaid(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and no process reads
	must(t, err)
	defer silent.Close()
	for args, says := range map[string]string{
		"status":                     "reading the locks, 1s: repository s3://bucket/prefix",
		"break-lock --yes":           "reading the locks, 1s: repository s3://bucket/prefix",
		"prune --dry-run -- true":    "reading the locks, 1s: repository s3://bucket/prefix",
		"prune -- true":              "s: repository s3://bucket/prefix",
		"backup --wait 1h -- true":   "s: repository s3://bucket/prefix",
		"doctor":                     "s: whether it can be reached",
		"acquire --shared --wait 1h": "s: repository s3://bucket/prefix",
	} {
		t.Run(args, func(t *testing.T) {
			onSilence(t, silent.Addr().String(), "xterm", args, says)
		})
	}
}

// TestSilentStoreIsSaidInLines: so it does, in whole lines, on a terminal that can't erase one.
func TestSilentStoreIsSaidInLines(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	for _, term := range []string{"dumb", ""} {
		for args, says := range map[string]string{
			"prune -- true":              "repolock: acquiring the lock: repository s3://bucket/prefix",
			"acquire --shared --wait 1h": "repolock: acquiring the lock: repository s3://bucket/prefix",
			"status":                     "repolock: reading the locks: repository s3://bucket/prefix",
			"doctor":                     "repolock: doctor: whether it can be reached\r\n",
			"torture":                    "repolock: 0s: 0 locks (",
		} {
			t.Run(args+" "+term, func(t *testing.T) {
				if shown := onSilence(t, silent.Addr().String(), term, args, says); strings.Contains(shown, "\x1b") {
					t.Errorf("shown: %q", shown)
				}
			})
		}
	}
}

// TestInterruptIsSaid: on a terminal a Ctrl-C during a wait for the lock is acknowledged, before the
// store has answered.
func TestInterruptIsSaid(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	for _, args := range []string{"prune -- true", "acquire --shared"} {
		t.Run(args, func(t *testing.T) {
			onSilence(t, silent.Addr().String(), "xterm", args, "acquiring the lock, ", "deleting the lock that might have been written")
		})
	}
}

// onSilence runs repolock on a terminal, with a repository on a server that doesn't answer. It waits
// until the terminal shows all texts, and types Ctrl-C after each.
func onSilence(t *testing.T, server, term, args string, says ...string) (shown string) {
	t.Helper()
	bin, err := exec.LookPath("repolock")
	must(t, err)
	repo := "s3://bucket/prefix?region=us-east-1&endpoint=http://" + server
	cmd := exec.Command(bin, append([]string{"-r", repo}, strings.Fields(args)...)...)
	cmd.Env = append(os.Environ(), "TERM="+term, "AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=y", "XDG_RUNTIME_DIR="+t.TempDir(), "TMPDIR="+t.TempDir())
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 120})
	must(t, err)
	defer terminal.Close()
	buf := make([]byte, 1024)
	for _, text := range says {
		for !strings.Contains(shown, text) {
			n, err := terminal.Read(buf)
			if err != nil {
				t.Fatalf("%v: %q", err, shown)
			}
			shown += string(buf[:n])
		}
		_, _ = terminal.WriteString("\x03")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return shown
}

// TestLockInDoubt: a lock counts as held if only one clock says that it has expired, and an
// acquirer without --wait can't watch it for its whole ttl. The message says that a person can
// end it.
func TestLockInDoubt(t *testing.T) {
	repo := t.TempDir()
	lock := filepath.Join(repo, "index", "lock.intent", "x")
	write(t, lock, `{"operation":"prune","holder":"far","expires_at":"2100-01-01T00:00:00Z","id":"0123","ttl_seconds":86400}`)
	old := time.Now().Add(-48 * time.Hour)
	must(t, os.Chtimes(lock, old, old))
	bin, err := exec.LookPath("repolock") // testscript.Main put it there
	must(t, err)
	repolock := func(args ...string) (code int, said string) {
		cmd := exec.Command(bin, append([]string{"-r", repo}, args...)...)
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	for _, wait := range []string{"0s", "1s"} {
		code, said := repolock("prune", "--wait", wait, "--", "true")
		for _, want := range []string{"prune on far, last seen ", "perhaps stale", "repolock break-lock --stale", "--wait 24h1m "} {
			if code != exitHeld || !strings.Contains(said, want) {
				t.Errorf("%d, without %q: %s", code, want, said)
			}
		}
	}
	code, said := repolock("break-lock", "--stale", "--yes")
	if _, err := os.Stat(lock); err != nil || code != 0 || !strings.Contains(said, "left alone: prune on far, ") {
		t.Errorf("%d, %v: %s", code, err, said)
	}

	cmd := exec.Command(bin, "-r", repo, "break-lock", "--stale")
	terminal, err := pty.Start(cmd)
	must(t, err)
	defer terminal.Close()
	if _, err := fmt.Fprintln(terminal, "y"); err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	buf := make([]byte, 1024)
	for n := 0; err == nil; n, err = terminal.Read(buf) {
		shown.Write(buf[:n])
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(shown.String(), "doubtful") {
		t.Errorf("%v: %s", err, shown.String())
	}
	if code, said := repolock("prune", "--", "true"); code != 0 {
		t.Errorf("after break-lock --stale: %d: %s", code, said)
	}
}
