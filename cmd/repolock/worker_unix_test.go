//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
)

// TestLockEndsWithTheWorker: a lock that a forked worker acquires ends with the worker, not
// with the program that forked it.
func TestLockEndsWithTheWorker(t *testing.T) {
	perl, err := exec.LookPath("perl")
	if err != nil {
		t.Skip(err)
	}
	d := newDesk(t)
	cmd := d.command(perl, "-e", `$| = 1; my $p = fork; if (!$p) { print qx(repolock --json acquire --shared), "\n.\n"; sleep 1000 } sleep 1000`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() }()
	var text string
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "."; {
		text += lines.Text()
	}
	var h session.Holding
	if err := json.Unmarshal([]byte(text), &h); err != nil || h.ForPID == cmd.Process.Pid {
		t.Fatalf("%v, for %d, and the program is %d", err, h.ForPID, cmd.Process.Pid)
	}
	time.Sleep(1500 * time.Millisecond)
	d.want(0, "is held", "check", h.Token)
	if err := syscall.Kill(h.ForPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.free()
}
