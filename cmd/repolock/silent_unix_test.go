//go:build unix

package main

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// TestSilentStoreIsSaid: on a terminal every command that asks a store which never answers says
// what it waits for.
func TestSilentStoreIsSaid(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and no process reads
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	repo := "s3://bucket/prefix?region=us-east-1&endpoint=http://" + server
	cmd := exec.Command(bin, append([]string{"-r", repo}, strings.Fields(args)...)...)
	cmd.Env = append(os.Environ(), "TERM="+term, "AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=y", "XDG_RUNTIME_DIR="+t.TempDir(), "TMPDIR="+t.TempDir())
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 120})
	if err != nil {
		t.Fatal(err)
	}
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
