//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// TestElsewhereAcquired: a token that has no keeper here can be of another user, or of another
// directory for sockets: the error says so, and where the lock can be seen.
func TestElsewhereAcquired(t *testing.T) {
	d := newDesk(t)
	h := d.acquire("--shared")
	other := newDesk(t)
	code, _, stderr := other.repolock("check", h.Token)
	for _, says := range []string{", or it was acquired by another user, or with another XDG_RUNTIME_DIR or TMPDIR (none in ", "repolock: hint: repolock status shows whether it is held; "} {
		if code != exitLost || !strings.Contains(stderr, says) || strings.Count(stderr, "\n") != 2 {
			t.Errorf("exit code %d, want %q\n%s", code, says, stderr)
		}
	}
	d.want(0, "", "release", h.Token)
}

// TestDeclined: with --json break-lock prints one object when the answer is no.
func TestDeclined(t *testing.T) {
	d := newDesk(t)
	repo := t.TempDir()
	write(t, filepath.Join(repo, "index", "lock.shared", "x"), "garbage")
	cmd := d.command(d.bin, "--json", "-r", repo, "break-lock")
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	defer tty.Close()
	if _, err := terminal.WriteString("n\n"); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, &stdout, &stderr
	code := exitOf(t, cmd.Run())
	_, object, _ := strings.Cut(stderr.String(), "[y/N] ")
	if code != exitAborted || stdout.Len() > 0 || !strings.HasPrefix(object, `{"error":"declined","message":"nothing was deleted","exit_code":1,`) || strings.Count(object, "\n") != 1 {
		t.Errorf("exit code %d\n%s%s", code, stdout.String(), stderr.String())
	}
}

// TestUnreadableLog: history exits with 77 for a log that it has no permission to read.
func TestUnreadableLog(t *testing.T) {
	d := newDesk(t)
	bin, dir := d.bin, t.TempDir()
	log := filepath.Join(dir, "log")
	write(t, log, "")
	if err := os.Chmod(log, 0); err != nil {
		t.Fatal(err)
	}
	cmd := d.command(bin, "history", log)
	if os.Getuid() == 0 { // root can read all files
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		copied, err := os.MkdirTemp("/tmp", "history")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(copied)
		bin = filepath.Join(copied, "repolock")
		if out, err := exec.Command("cp", d.bin, bin).CombinedOutput(); err != nil || os.Chmod(copied, 0o755) != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cmd = d.command(bin, "history", log)
		cmd.Dir = copied
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if code := exitOf(t, cmd.Run()); code != exitPermission || !strings.HasPrefix(stderr.String(), "repolock: error: open ") || strings.Contains(stderr.String(), "hint") {
		t.Errorf("exit code %d\n%s", code, stderr.String())
	}
}
