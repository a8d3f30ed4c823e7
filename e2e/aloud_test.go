//go:build unix && !minio && !programs

package e2e

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/procstat"
)

// TestAloud: the script prints its steps, keeps its exit code, and leaves no process, however
// it ends.
func TestAloud(t *testing.T) {
	t.Parallel()
	// A shell that was just forked can lose a signal that its parent traps: the program must run.
	const sleeps = "sh -c 'echo sleeps; exec sleep 600'"
	for _, c := range []struct {
		name, script string
		signal       syscall.Signal
		code         int
		says         string
	}{
		{"until it is done", `aloud first; aloud reading "two words"; read -r line || quiet; exit 3`, 0, 3, "still reading two words, "},
		{"until it ends", "aloud reading; exit 3", 0, 3, ""},
		{"until it fails", "aloud reading; false; echo on", 0, 1, ""},
		{"until Ctrl-C", "aloud reading; " + sleeps, syscall.SIGINT, 130, "sleeps\n"},
		{"until it is terminated", "aloud reading; " + sleeps, syscall.SIGTERM, 143, "sleeps\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("sh", "-euc", ". ./aloud.sh; trap quiet EXIT; trap 'exit 130' INT; trap 'exit 143' TERM; echo up; "+c.script)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			out := &lockedBuffer{}
			cmd.Stdout, cmd.Stderr = out, out
			stdin, err := cmd.StdinPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
			says := func(what string) {
				for end := time.Now().Add(hang); !strings.Contains(out.String(), what); time.Sleep(20 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("no %q: %s", what, out)
					}
				}
			}
			says("up\n")
			says(c.says)
			if c.signal != 0 {
				if err := syscall.Kill(-cmd.Process.Pid, c.signal); err != nil {
					t.Fatal(err)
				}
			}
			_ = stdin.Close()
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, out)
			}
			if got := out.String(); strings.Contains(got, "still first") {
				t.Errorf("it printed %q", got)
			}
			for end := time.Now().Add(hang); !groupEnded(cmd.Process.Pid); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("a process is left")
				}
			}
		})
	}
}

// groupEnded reports whether all processes of a group have ended. On a system without an init, as in
// a container, they can stay as zombies.
func groupEnded(group int) bool {
	if syscall.Kill(-group, 0) == syscall.ESRCH {
		return true
	}
	processes, err := os.ReadDir("/proc")
	for _, p := range processes {
		if s, ok := procstat.Read(p.Name()); ok && s.Group == group && !s.Ended {
			return false
		}
	}
	return err == nil
}
