//go:build unix

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// scenarios are what goes the same way on every store.
var scenarios = []struct {
	name   string
	outage bool // it takes the store away
	run    func(*site)
}{
	{"shared", false, shared},
	{"killed backup", false, func(s *site) { killed(s, "backup") }},
	{"killed prune", false, func(s *site) { killed(s, "prune") }},
	{"broken backup", false, func(s *site) { broken(s, "backup") }},
	{"broken prune", false, func(s *site) { broken(s, "prune") }},
	{"long outage of a backup", true, func(s *site) { longOutage(s, "backup") }},
	{"long outage of a prune", true, func(s *site) { longOutage(s, "prune") }},
	{"short outage of a backup", true, func(s *site) { shortOutage(s, "backup") }},
	{"short outage of a prune", true, func(s *site) { shortOutage(s, "prune") }},
	{"outage with --on-lost kill", true, killedByOutage},
	{"outage with --resume-for", true, resumeFor},
	{"stopped", false, stopped},
	{"stopped alone", false, stoppedAlone},
	{"contenders", false, contenders},
}

// shared: two are in at once, and an exclusive isn't; then the other way round.
func shared(s *site) {
	a, b := s.hold("backup", "a"), s.hold("restore", "b")
	refused(s, "prune", a, b)
	if !s.ticking("a") || !s.ticking("b") {
		s.t.Error("the two didn't go on together")
	}
	a.end("a")
	refused(s, "prune", b)
	b.end("b")

	c := s.hold("prune", "c")
	refused(s, "prune", c)
	refused(s, "backup", c)
	c.end("c")
	s.nothingLeft()
}

// refused: an operation is told who holds the lock, and its command isn't run.
func refused(s *site, operation string, holders ...*process) {
	s.t.Helper()
	p := s.start(operation, "--ttl", ttl.String(), "--", "touch", "refused-ran")
	if code := p.code(); code != 75 {
		s.t.Errorf("the %s has exit code %d, want 75", operation, code)
	}
	for _, h := range holders {
		if pid := fmt.Sprintf("(pid %d)", h.Process.Pid); !strings.Contains(p.stderr.String(), pid) {
			s.t.Errorf("the %s isn't told of %s: %s", operation, pid, p.stderr.String())
		}
	}
	if s.exists("refused-ran") {
		s.t.Errorf("the command of the refused %s was run", operation)
	}
}

// killed: the command of a holder that is killed dies with it, and the lock frees
// itself: not before its lease is over, and soon after.
func killed(s *site, operation string) {
	p := s.hold(operation, "a")
	renewed := time.Now() // the last renewal was sent after this less ttl/2
	p.signal(syscall.SIGKILL)
	killed := time.Now()
	s.until("the command to die", 2*time.Second, func() bool { return s.gone("pid-a") })
	s.freed()
	took := time.Since(killed)
	s.t.Logf("free again after %v", took.Round(100*time.Millisecond))
	if took > ttl+5*time.Second {
		s.t.Errorf("free again only after %v", took)
	}
	if time.Since(renewed) < ttl/2 {
		s.t.Errorf("free again after %v, within the lease", took)
	}
	s.nothingLeft()
}

// broken: break-lock stops the command of a live holder within a refresh.
func broken(s *site, operation string) {
	p := s.hold(operation, "a")
	if code := s.start("break-lock", "--yes").code(); code != 0 {
		s.t.Errorf("break-lock has exit code %d", code)
	}
	start := time.Now()
	if code := p.code(); code != 79 {
		s.t.Errorf("exit code %d, want 79", code)
	}
	took := time.Since(start)
	s.t.Logf("stopped after %v", took.Round(100*time.Millisecond))
	if took > ttl/2+3*time.Second {
		s.t.Errorf("stopped only after %v", took)
	}
	if !s.gone("pid-a") {
		s.t.Error("the command lives on")
	}
	s.nothingLeft()
}

// longOutage: while the repository can't be reached for longer than the lease, the
// command is stopped, and afterwards it goes on, since it is alone.
func longOutage(s *site, operation string) {
	p := s.hold(operation, "a")
	s.away()
	away := time.Now()
	s.until("the command to be stopped", ttl+2*time.Second, func() bool { return !s.ticking("a") })
	time.Sleep(2 * time.Second)
	if times := s.times("a"); times[len(times)-1].Sub(away) > ttl {
		s.t.Errorf("it ran for %v without its lock", times[len(times)-1].Sub(away))
	}
	s.back()
	back := time.Now()
	s.until("the command to go on", 20*time.Second, func() bool { return s.ticking("a") })
	s.t.Logf("it went on %v after the repository was back", time.Since(back).Round(100*time.Millisecond))
	p.end("a")
	s.nothingLeft()
}

// shortOutage is not noticed by the command.
func shortOutage(s *site, operation string) {
	p := s.hold(operation, "a")
	time.Sleep(ttl/2 - time.Second)
	s.away()
	time.Sleep(1500 * time.Millisecond) // over one refresh
	s.back()
	time.Sleep(ttl)
	p.end("a")
	if from, d := gap(s.times("a")); d > 2*time.Second {
		s.t.Errorf("it didn't run for %v from %v", d, from)
	}
	s.nothingLeft()
}

// killedByOutage: with --on-lost kill the command is dead before anybody else can
// be in.
func killedByOutage(s *site) {
	p := s.hold("backup", "a", "--on-lost", "kill")
	s.away()
	away := time.Now()
	if code := p.code(); code != 79 {
		s.t.Errorf("exit code %d, want 79", code)
	}
	if took := time.Since(away); took > ttl+10*time.Second {
		s.t.Errorf("ended only after %v", took)
	}
	if !s.gone("pid-a") {
		s.t.Error("the command lives on")
	}
	if times := s.times("a"); times[len(times)-1].Sub(away) > ttl {
		s.t.Errorf("it ran for %v without its lock", times[len(times)-1].Sub(away))
	}
	s.back()
	s.until("the lock to free itself", ttl, func() bool {
		return s.start("prune", "--ttl", ttl.String(), "--", "true").code() == 0
	})
	s.nothingLeft()
}

// resumeFor: an outage that lasts longer than --resume-for ends the command.
func resumeFor(s *site) {
	p := s.hold("backup", "a", "--resume-for", "2s")
	s.away()
	if code := p.code(); code != 79 {
		s.t.Errorf("exit code %d, want 79", code)
	}
	if !s.gone("pid-a") {
		s.t.Error("the command lives on")
	}
	s.back()
}

// stopped: while repolock itself is stopped past its lease somebody else gets in.
// The command of the first doesn't run at the same time, and never again.
func stopped(s *site) {
	a := s.hold("backup", "a")
	a.signal(syscall.SIGSTOP)
	var b *process
	s.until("another to get in", 2*ttl, func() bool {
		b = s.start("prune", "--ttl", ttl.String(), "--", "sh", "-c", "date +%s%N >b-in; sleep 3; date +%s%N >b-out")
		return b.code() == 0
	})
	a.signal(syscall.SIGCONT)
	if code := a.code(); code != 79 {
		s.t.Errorf("exit code %d, want 79", code)
	}
	in := s.times("b-in")[0]
	if times := s.times("a"); !times[len(times)-1].Before(in) {
		s.t.Errorf("the first ran until %v, the other was in from %v", times[len(times)-1], in)
	}
	if !s.gone("pid-a") {
		s.t.Error("the first command lives on")
	}
	s.nothingLeft()
}

// stoppedAlone: nobody was in, so the command goes on.
func stoppedAlone(s *site) {
	a := s.hold("prune", "a")
	a.signal(syscall.SIGSTOP)
	stopped := time.Now()
	time.Sleep(ttl + 3*time.Second)
	a.signal(syscall.SIGCONT)
	s.until("the command to go on", 10*time.Second, func() bool { return s.ticking("a") })
	a.end("a")
	from, d := gap(s.times("a"))
	if d < 2*time.Second || from.Sub(stopped) > ttl {
		s.t.Errorf("it didn't run for %v, from %v after repolock was stopped", d, from.Sub(stopped))
	}
	s.nothingLeft()
}

// contenders: of many processes that prune at once never two are in.
func contenders(s *site) {
	const n, rounds = 6, 8
	results := make(chan string, n)
	for i := range n {
		go func() {
			won := 0
			for range rounds {
				// mkdir fails if another is in.
				cmd := exec.Command(bin+"/repolock", "prune", "--ttl", ttl.String(), "--", "sh", "-c",
					"mkdir "+s.path("inside")+" || exit 99; sleep 0.05; rmdir "+s.path("inside"))
				cmd.Env = s.environ()
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
		s.t.Log(r)
		if strings.Contains(r, "exit code") {
			s.t.Error(r)
		}
	}
	s.nothingLeft()
}
