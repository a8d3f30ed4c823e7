//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/procstat"
	"github.com/repolock/repolock/internal/test/rounds"
)

// TestLocalScript runs the script of the README. It begins with what it is about to do and to
// cost, counts while Go builds, and ends with a picture of the run.
func TestLocalScript(t *testing.T) {
	rounds.Long(t, "it builds slowly on purpose")
	t.Parallel()
	program, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	slow := t.TempDir()
	stub := "#!/bin/sh\nif [ $1 = build ]; then printf 'one\\ntwo\\n' >&2; sleep 9; fi\nexec " + program + ` "$@"` + "\n"
	if err := os.WriteFile(filepath.Join(slow, "go"), []byte(stub), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "local.sh")
	cmd.Env = append(os.Environ(), "PATH="+slow+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	said := string(out)
	t.Logf("%s", said)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?s)^This builds repolock.* about \d+ MB.*\nmodules downloaded: \d+, \d+ s\n(packages compiled: 2 of at most \d{3}, \d+ s\n){2}`).MatchString(said) {
		t.Error("it doesn't say what it does")
	}
	_, picture, _ := strings.Cut(said, "== what happened")
	for _, line := range strings.Split(picture, "\n") {
		if len(line) > 80 {
			t.Errorf("a line of %d columns: %s", len(line), line)
		}
	}
	if !regexp.MustCompile(`
backup shared +\.*#+ +success
backup shared +\.*#+ +success
prune  exclusive +x +refused
prune  exclusive +\.*#+ +success
backup shared +\.*#\?+ +no end: it was killed
prune  exclusive +\.*#+ +success
`).MatchString(picture) {
		t.Errorf("the picture isn't that of the run:%s", picture)
	}
}

// TestAloud: the script prints its steps, keeps its exit code, and leaves no process, however
// it ends.
func TestAloud(t *testing.T) {
	rounds.Long(t, "it waits for what is printed each 8 s")
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

// TestSoak: make soak runs until it is interrupted, and prints its totals.
func TestSoak(t *testing.T) {
	rounds.Long(t, "it builds the simulator")
	t.Parallel()
	cmd := exec.Command("make", "-C", "..", "soak")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // other tests are under way
	out := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	within := time.After(hang)
	for !strings.Contains(out.String(), "histories") {
		select {
		case err := <-done:
			t.Fatalf("it ended: %v\n%s", err, out)
		case <-within:
			t.Fatalf("it printed no totals:\n%s", out)
		case <-time.After(100 * time.Millisecond):
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-within:
		t.Fatalf("it doesn't end:\n%s", out)
	}
	if strings.Contains(out.String(), "--- FAIL") {
		t.Error(out)
	}
}
