//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/states"
)

// TestClosedLogKillsNoKeeper: a keeper runs on when the pipe of its log has lost its reader.
func TestClosedLogKillsNoKeeper(t *testing.T) {
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
					return len(sockets) == 0 || states.Of(script.Process.Pid) == "Z"
				})
				if states.Of(script.Process.Pid) != "Z" {
					t.Error("the script wasn't killed")
					_ = script.Process.Kill()
				}
			}
			_ = script.Wait()
			d.free()
		})
	}
}

// TestFullLogDelaysNoRelease: a lock is released although the pipe of its log is full.
func TestFullLogDelaysNoRelease(t *testing.T) {
	t.Parallel()
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

// TestClosedStderrKillsNoSession: a repolock around a command runs on when its stderr has lost
// its reader.
func TestClosedStderrKillsNoSession(t *testing.T) {
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
