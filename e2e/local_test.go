//go:build unix && !minio && !programs

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestOnDirectory runs the scenarios on a local directory.
func TestOnDirectory(t *testing.T) {
	t.Parallel()
	for _, c := range scenarios {
		t.Run(c.name, func(t *testing.T) { c.run(newSite(t)) })
	}
}

// TestLocalScript runs the script of the README. It begins with what it is about to do and to
// cost, counts while Go builds, and ends with a picture of the run.
func TestLocalScript(t *testing.T) {
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

// TestOnLost: --on-lost term, kill and warn treat a loss as documented.
func TestOnLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		how, command string
		code         int
		cleanedUp    bool
		outlives     bool
	}{
		{"kill", "trap 'touch cleaned-up' TERM; touch started; while :; do sleep 0.05; touch alive; done", 79, false, false},
		{"term", "trap 'touch cleaned-up; exit 0' TERM; touch started; while :; do sleep 0.05; touch alive; done", 79, true, false},
		{"term", "trap 'touch cleaned-up' TERM; touch started; while :; do sleep 0.05; touch alive; done", 79, true, false},
		{"term", "trap 'touch cleaned-up; exit 3' TERM; touch started; while :; do sleep 0.05; touch alive; done", 3, true, false},
		{"warn", "touch started; until [ -e lost ]; do sleep 0.05; done; touch outlived", 79, false, true},
		{"warn", "touch started; until [ -e lost ]; do sleep 0.05; done; touch outlived; exit 3", 3, false, true},
	} {
		t.Run(c.how+" "+c.command[:20], func(t *testing.T) {
			s := newSite(t)
			// TERM comes so long before the deadline that a busy machine has time to act on
			// it.
			p := s.start("backup", "--ttl", "60s", "--on-lost", c.how, "--", "sh", "-c", c.command)
			p.reaches("the command to run", func() bool { return s.exists("started") })
			s.away()
			if c.outlives {
				p.says("lock lost: ")
				s.touch("lost")
			}
			if code := p.code(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if s.exists("cleaned-up") != c.cleanedUp || s.exists("outlived") != c.outlives {
				t.Errorf("cleaned up %v, outlived %v", s.exists("cleaned-up"), s.exists("outlived"))
			}
			s.remove("alive")
			time.Sleep(300 * time.Millisecond)
			if s.exists("alive") {
				t.Error("the command lives on")
			}
		})
	}
}

// TestSignals: a signal reaches the command, and repolock ends as the command does.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		t.Run(sig.String(), func(t *testing.T) {
			s := newSite(t)
			name := strings.TrimPrefix(fmt.Sprint(map[syscall.Signal]string{
				syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP", syscall.SIGQUIT: "QUIT",
				syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2",
			}[sig]), "SIG")
			p := s.start("prune", "--", "sh", "-c", "trap 'echo got "+name+"; exit 7' "+name+"; touch started; while :; do sleep 0.05; done")
			p.reaches("the command to run", func() bool { return s.exists("started") })
			p.signal(sig)
			if code := p.code(); code != 7 || !strings.Contains(p.stderr.String(), "got "+name) {
				t.Errorf("exit code %d: %s", code, p.stderr.String())
			}
			s.nothingLeft()

			p = s.start("prune", "--", "sh", "-c", "touch again; sleep 100")
			p.reaches("the command to run", func() bool { return s.exists("again") })
			p.signal(sig)
			if code := p.code(); code != 128+int(sig) {
				t.Errorf("exit code %d, want %d", code, 128+int(sig))
			}
			s.nothingLeft()
		})
	}
}

// TestSignalWhileAcquiring: a signal that ends a command ends the acquire, runs nothing and
// leaves nothing. Any other signal reaches the command once it runs.
func TestSignalWhileAcquiring(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1} {
		t.Run(sig.String(), func(t *testing.T) {
			s := newSite(t)
			// A lock whose holder's clock is wrong is watched for its ttl.
			if err := os.MkdirAll(s.path("repo/index/lock.shared"), 0o700); err != nil {
				t.Fatal(err)
			}
			lock := s.path("repo/index/lock.shared/x")
			body := `{"operation":"backup","holder":"h (pid 1)","expires_at":"9999-01-01T00:00:00Z","ttl_seconds":10}`
			if err := os.WriteFile(lock, []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(lock, old, old); err != nil {
				t.Fatal(err)
			}
			p := s.start("prune", "--", "sh", "-c", "touch ran; sleep 10")
			p.says("watching a lock that might be stale for up to 10s: backup on h")
			p.signal(sig)
			if code := p.code(); code != 128+int(sig) {
				t.Errorf("exit code %d, want %d", code, 128+int(sig))
			}
			if sig != syscall.SIGUSR1 && s.exists("ran") {
				t.Error("the command was run")
			}
			if s.exists("repo/index/lock.intent") || s.exists("repo/index/lock.exclusive") {
				t.Error("it left something")
			}
		})
	}
}

func (s *site) remove(name string) { _ = os.Remove(s.path(name)) }
