//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAcquireUnknown: what backup refuses, acquire does, too: a name that is also a
// directory's, and one that is neither.
func TestAcquireUnknown(t *testing.T) {
	d := newDesk(t)
	path := configured(t, "[repositories.prod]\nurl = '/x'")
	if err := os.Mkdir(filepath.Join(d.repo, "prod"), 0o700); err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]string{"prod": "is a repository in " + path, "photos": "no repository of that name in " + path} {
		code, stdout, stderr := d.repolock("-r", word, "acquire", "--exclusive")
		if code != exitUsage && code != exitUnavailable || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: %d %s%s", word, code, stdout, stderr)
		}
	}
	d.free()
}

// TestLogUnread: a keeper doesn't die of a log that nobody reads any more.
func TestLogUnread(t *testing.T) {
	for _, end := range []string{"ended", "lost"} {
		t.Run(end, func(t *testing.T) {
			d := newDesk(t)
			script := d.command("sleep", "1000")
			if err := script.Start(); err != nil {
				t.Fatal(err)
			}
			ours, theirs, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			flags := []string{"acquire", "--exclusive", "--ttl", "1h", "--log", "/dev/fd/3", "--for-pid", fmt.Sprint(script.Process.Pid)}
			if runtime.GOOS == "linux" {
				flags = append(flags, "--on-lost", "kill")
			}
			cmd := d.command(d.bin, flags...)
			cmd.ExtraFiles = []*os.File{theirs}
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			theirs.Close()
			ours.Close()
			if end == "ended" || runtime.GOOS != "linux" {
				_ = script.Process.Kill()
			} else if code, _, stderr := d.repolock("break-lock", "--yes"); code != 0 {
				t.Fatal(stderr)
			} else {
				until(t, "its keeper looks", func() bool {
					sockets, _ := os.ReadDir(filepath.Join(d.run, "repolock"))
					for _, s := range sockets {
						d.repolock("check", s.Name())
					}
					return len(sockets) == 0 || state(script.Process.Pid) == "Z"
				})
				if state(script.Process.Pid) != "Z" {
					t.Error("the script wasn't killed")
					_ = script.Process.Kill()
				}
			}
			_ = script.Wait()
			d.free()
		})
	}
}

// TestLogHangs: nor is a lock held on for a log that nobody reads yet.
func TestLogHangs(t *testing.T) {
	d := newDesk(t)
	script := d.command("sleep", "1000")
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	_ = theirs.SetWriteDeadline(time.Now().Add(time.Second))
	for err == nil { // until it is full
		_, err = theirs.Write(make([]byte, 4096))
	}
	cmd := d.command(d.bin, "acquire", "--exclusive", "--log", "/dev/fd/3", "--for-pid", fmt.Sprint(script.Process.Pid))
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	_ = script.Process.Kill()
	_ = script.Wait()
	d.free()
}

// TestWorkerEnds: a worker that a program made of itself isn't that program.
func TestWorkerEnds(t *testing.T) {
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
	var h holding
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

// TestNobodyReads: nor does a repolock around a command die of it.
func TestNobodyReads(t *testing.T) {
	d := newDesk(t)
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	cmd := d.command(d.bin, "-v", "prune", "--", "sh", "-c", "kill -PIPE $$")
	cmd.Stderr = theirs
	ours.Close()
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGPIPE) { // as the command did
		t.Errorf("it ended with %v", err)
	}
	d.free()
}
