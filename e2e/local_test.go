//go:build unix

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLocalScript runs the script of the README.
func TestLocalScript(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("sh", "local.sh").CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// TestOutage: while the repository can't be reached for longer than the lease,
// the command is stopped, and afterwards it goes on.
func TestOutage(t *testing.T) {
	s := newSite(t)
	p := s.start(append([]string{"backup", "--ttl", ttl.String()}, ticks("a")...)...)
	s.until("the command to run", 10*time.Second, func() bool { return s.ticking("a") })
	away := time.Now()
	if err := os.Rename(s.path("repo"), s.path("unmounted")); err != nil {
		t.Fatal(err)
	}
	s.until("the command to be stopped", ttl+2*time.Second, func() bool { return !s.ticking("a") })
	time.Sleep(2 * time.Second)
	if times := s.times("a"); times[len(times)-1].Sub(away) > ttl {
		t.Errorf("it ran for %v without its lock", times[len(times)-1].Sub(away))
	}
	if err := os.Rename(s.path("unmounted"), s.path("repo")); err != nil {
		t.Fatal(err)
	}
	s.until("the command to go on", 20*time.Second, func() bool { return s.ticking("a") })
	s.touch("stop-a")
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.nothingLeft()
}

// TestShortOutage is not noticed by the command.
func TestShortOutage(t *testing.T) {
	s := newSite(t)
	p := s.start(append([]string{"prune", "--ttl", ttl.String()}, ticks("a")...)...)
	s.until("the command to run", 10*time.Second, func() bool { return s.ticking("a") })
	time.Sleep(ttl/2 - time.Second)
	if err := os.Rename(s.path("repo"), s.path("unmounted")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond) // over one refresh
	if err := os.Rename(s.path("unmounted"), s.path("repo")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(ttl)
	s.touch("stop-a")
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if from, d := gap(s.times("a")); d > 2*time.Second {
		t.Errorf("it didn't run for %v from %v", d, from)
	}
	s.nothingLeft()
}

// TestResumeFor: an outage that lasts longer than --resume-for ends the command.
func TestResumeFor(t *testing.T) {
	s := newSite(t)
	p := s.start(append([]string{"backup", "--ttl", ttl.String(), "--resume-for", "2s"}, ticks("a")...)...)
	s.until("the command to run", 10*time.Second, func() bool { return s.ticking("a") })
	if err := os.Rename(s.path("repo"), s.path("unmounted")); err != nil {
		t.Fatal(err)
	}
	if code := p.code(); code != 79 {
		t.Errorf("exit code %d, want 79", code)
	}
	if !s.gone("pid-a") {
		t.Error("the command lives on")
	}
}

// TestStopped: while repolock itself is stopped past its lease somebody else gets
// in. The command of the first doesn't run at the same time, and never again.
func TestStopped(t *testing.T) {
	s := newSite(t)
	a := s.start(append([]string{"backup", "--ttl", ttl.String()}, ticks("a")...)...)
	s.until("the first command to run", 10*time.Second, func() bool { return s.ticking("a") })
	a.signal(syscall.SIGSTOP)
	var b *process
	s.until("another to get in", 2*ttl, func() bool {
		b = s.start("prune", "--ttl", ttl.String(), "--", "sh", "-c", "date +%s%N >b-in; sleep 3; date +%s%N >b-out")
		return b.code() == 0
	})
	a.signal(syscall.SIGCONT)
	if code := a.code(); code != 79 {
		t.Errorf("exit code %d, want 79", code)
	}
	in := s.times("b-in")[0]
	if times := s.times("a"); !times[len(times)-1].Before(in) {
		t.Errorf("the first ran until %v, the other was in from %v", times[len(times)-1], in)
	}
	if !s.gone("pid-a") {
		t.Error("the first command lives on")
	}
	s.nothingLeft()
}

// TestStoppedAlone: nobody was in, so the command goes on.
func TestStoppedAlone(t *testing.T) {
	s := newSite(t)
	a := s.start(append([]string{"prune", "--ttl", ttl.String()}, ticks("a")...)...)
	s.until("the command to run", 10*time.Second, func() bool { return s.ticking("a") })
	a.signal(syscall.SIGSTOP)
	stopped := time.Now()
	time.Sleep(ttl + 3*time.Second)
	a.signal(syscall.SIGCONT)
	s.until("the command to go on", 10*time.Second, func() bool { return s.ticking("a") })
	s.touch("stop-a")
	if code := a.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	from, d := gap(s.times("a"))
	if d < 2*time.Second || from.Sub(stopped) > ttl {
		t.Errorf("it didn't run for %v, from %v after repolock was stopped", d, from.Sub(stopped))
	}
	s.nothingLeft()
}

// TestOnLost: the other ways to deal with a loss.
func TestOnLost(t *testing.T) {
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
		{"warn", "touch started; sleep 14; touch outlived", 79, false, true},
		{"warn", "touch started; sleep 14; touch outlived; exit 3", 3, false, true},
	} {
		t.Run(c.how+" "+c.command[:20], func(t *testing.T) {
			s := newSite(t)
			p := s.start("backup", "--ttl", ttl.String(), "--on-lost", c.how, "--", "sh", "-c", c.command)
			s.until("the command to run", 10*time.Second, func() bool { return s.exists("started") })
			if err := os.Rename(s.path("repo"), s.path("unmounted")); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if code := p.code(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if took := time.Since(start); !c.outlives && took > ttl+10*time.Second {
				t.Errorf("ended only after %v", took)
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

// TestSignals reach the command, and its fate is repolock's.
func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		t.Run(sig.String(), func(t *testing.T) {
			s := newSite(t)
			name := strings.TrimPrefix(fmt.Sprint(map[syscall.Signal]string{
				syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP", syscall.SIGQUIT: "QUIT",
				syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2",
			}[sig]), "SIG")
			p := s.start("prune", "--", "sh", "-c", "trap 'echo got "+name+"; exit 7' "+name+"; touch started; while :; do sleep 0.05; done")
			s.until("the command to run", 10*time.Second, func() bool { return s.exists("started") })
			p.signal(sig)
			if code := p.code(); code != 7 || !strings.Contains(p.stderr.String(), "got "+name) {
				t.Errorf("exit code %d: %s", code, p.stderr.String())
			}
			s.nothingLeft()

			p = s.start("prune", "--", "sh", "-c", "touch again; sleep 100")
			s.until("the command to run", 10*time.Second, func() bool { return s.exists("again") })
			p.signal(sig)
			if code := p.code(); code != 128+int(sig) {
				t.Errorf("exit code %d, want %d", code, 128+int(sig))
			}
			s.nothingLeft()
		})
	}
}

// TestSignalWhileAcquiring: one that ends a command ends the acquire, and
// nothing is run or left; another one reaches the command once it runs.
func TestSignalWhileAcquiring(t *testing.T) {
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
			time.Sleep(3 * time.Second)
			p.signal(sig)
			start := time.Now()
			if code := p.code(); code != 128+int(sig) {
				t.Errorf("exit code %d, want %d", code, 128+int(sig))
			}
			if sig != syscall.SIGUSR1 && (s.exists("ran") || time.Since(start) > 2*time.Second) {
				t.Errorf("it ran %v, and ended after %v", s.exists("ran"), time.Since(start))
			}
			if s.exists("repo/index/lock.intent") || s.exists("repo/index/lock.exclusive") {
				t.Error("it left something")
			}
		})
	}
}

// TestContenders: of many processes that prune at once never two are in.
func TestContenders(t *testing.T) {
	s := newSite(t)
	const n, rounds = 6, 8
	results := make(chan string, n)
	for i := range n {
		go func() {
			won := 0
			for range rounds {
				// mkdir fails if another is in.
				cmd := exec.Command(bin+"/repolock", "prune", "--ttl", ttl.String(), "--", "sh", "-c",
					"mkdir "+s.path("inside")+" || exit 99; sleep 0.05; rmdir "+s.path("inside"))
				cmd.Env = append(os.Environ(), "REPOLOCK_REPO="+s.repo)
				out, err := cmd.CombinedOutput()
				switch code := cmd.ProcessState.ExitCode(); code {
				case 0:
					won++
				case 75:
				default:
					results <- fmt.Sprintf("%d: exit code %d: %v %s", i, code, err, out)
					return
				}
			}
			results <- fmt.Sprintf("%d: won %d of %d", i, won, rounds)
		}()
	}
	for range n {
		r := <-results
		t.Log(r)
		if strings.Contains(r, "exit code") {
			t.Error(r)
		}
	}
	s.nothingLeft()
}
