//go:build unix

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
)

// scenarios behave the same on every store.
var scenarios = []struct {
	name   string
	outage bool // it takes the store away
	run    func(*site)
}{
	{"shared", false, shared},
	{"held on", false, heldOn},
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
	{"stopped", false, overtaken},
	{"stopped alone", false, stoppedAlone},
	{"contenders", false, contenders},
}

// shared: two shared holders are in at once, and an exclusive one isn't; then the other way
// round.
func shared(s *site) {
	a, b := s.hold("backup", "a"), s.hold("restore", "b")
	refused(s, "prune", a, b)
	a.ticksOn("a") // the two go on together
	b.ticksOn("b")
	a.end("a")
	refused(s, "prune", b)
	b.end("b")

	c := s.hold("prune", "c")
	refused(s, "prune", c)
	refused(s, "backup", c)
	c.end("c")
	s.nothingLeft()
}

// refused: an operation is refused with the names of the holders, and its command isn't run.
func refused(s *site, operation string, holders ...*process) {
	s.t.Helper()
	p := s.start(operation, "--", "touch", "refused-ran")
	p.exits(75)
	for _, h := range holders {
		p.contains(fmt.Sprintf("(pid %d, ", h.Process.Pid))
	}
	assert.That(s.t, !s.exists("refused-ran"), "the command of the refused %s was run", operation)
}

// heldOn: a command runs on beyond the first lease, because its lock is refreshed.
func heldOn(s *site) {
	begin := time.Now()
	p := s.hold("backup", "a", brief...)
	s.until("the first lease to be over", func() bool { return time.Since(begin) > ttl+time.Second })
	p.ticksOn("a")
	p.end("a")
	s.nothingLeft()
}

// killed: the command of a holder that is killed dies with it. The lock becomes free not
// before its lease has ended, and soon after.
func killed(s *site, operation string) {
	p := s.hold(operation, "a", brief...)
	p.signal(syscall.SIGKILL)
	killed := time.Now()
	s.until("the command to die", func() bool { return s.gone("pid-a") })
	end := s.leased()
	in := s.freed(killed.Add(ttl + 5*time.Second))
	s.t.Logf("free again after %v", in.Sub(killed).Round(100*time.Millisecond))
	assert.That(s.t, !in.Before(end), "free again %v before the lease was over", end.Sub(in))
	s.nothingLeft()
}

// broken: break-lock stops the command of a live holder at its next look.
func broken(s *site, operation string) {
	p := s.hold(operation, "a", "--look", "1s", "--verbose")
	if operation == "prune" {
		p.says("refreshed: ") // after a second. A refresh that is under way can put lock.exclusive back
	}
	s.start("break-lock", "--yes").exits(0)
	p.exits(79)
	p.contains("by break-lock or by hand")
	assert.That(s.t, s.gone("pid-a"), "the command lives on")
	s.nothingLeft()
}

// longOutage: while the repository is unreachable for longer than the lease, the command is
// stopped. Afterwards it continues, since no other holder has come.
func longOutage(s *site, operation string) {
	p := s.hold(operation, "a", brief...)
	s.away()
	away := time.Now()
	s.stops("a")
	s.ranWithin("a", away)
	s.back()
	p.ticksOn("a")
	p.end("a")
	s.nothingLeft()
}

// shortOutage: the command doesn't notice an outage that is shorter than the lease. The lease
// is long enough for a busy machine to start a server in.
func shortOutage(s *site, operation string) {
	p := s.hold(operation, "a", "--ttl", "90s", "--verbose", "--audit", s.path("audit"))
	s.away()
	p.says("refreshing the lock failed")
	s.back()
	p.says("refreshed: ")
	p.end("a")
	log := read(s.t, s.path("audit"))
	assert.That(s.t, strings.Contains(log, audit.Released) && !strings.Contains(log, audit.Lost) && !strings.Contains(log, audit.Paused), "it was noticed:\n%s", log)
	s.nothingLeft()
}

// killedByOutage: with --on-lost kill the command is dead before another client can acquire the lock.
func killedByOutage(s *site) {
	p := s.hold("backup", "a", append(brief, "--on-lost", "kill")...)
	s.away()
	away := time.Now()
	p.exits(79)
	assert.That(s.t, s.gone("pid-a"), "the command lives on")
	s.ranWithin("a", away)
	s.back()
	s.freed(time.Now().Add(ttl + 5*time.Second))
	s.nothingLeft()
}

// resumeFor: an outage that lasts longer than --resume-for ends the command.
func resumeFor(s *site) {
	p := s.hold("backup", "a", append(brief, "--resume-for", "2s")...)
	s.away()
	p.exits(79)
	assert.That(s.t, s.gone("pid-a"), "the command lives on")
	s.back()
}

// overtaken: another client acquires the lock while repolock is stopped past its lease. The first command
// doesn't run beside the other, and never again.
func overtaken(s *site) {
	a := s.hold("backup", "a", brief...)
	a.signal(syscall.SIGSTOP)
	s.another()
	a.signal(syscall.SIGCONT)
	s.lostTo(a)
}

// another waits until another client has acquired and released the lock.
func (s *site) another() {
	s.t.Helper()
	s.start("prune", "--ttl", ttl.String(), "--wait", hang.String(), "--", "sh", "-c", "date +%s%N >b-in; sleep 3").exits(0)
}

// lostTo checks that the first holder has lost its lock to the other, and that its command hasn't run since.
func (s *site) lostTo(a *process) {
	s.t.Helper()
	a.exits(79)
	in, last := s.times("b-in")[0], s.last("a")
	assert.That(s.t, last.Before(in), "the first ran until %v, the other was in from %v", last, in)
	assert.That(s.t, s.gone("pid-a"), "the first command lives on")
	s.nothingLeft()
}

// stoppedAlone: no other client has acquired the lock, so the command continues.
func stoppedAlone(s *site) {
	a := s.hold("prune", "a", brief...)
	a.signal(syscall.SIGSTOP)
	since := time.Now()
	s.stops("a")
	s.ranWithin("a", since)
	time.Sleep(time.Until(since.Add(ttl + 3*time.Second)))
	a.signal(syscall.SIGCONT)
	a.ticksOn("a")
	a.end("a")
	s.nothingLeft()
}

// contenders: of many processes that prune at once two are never in together.
func contenders(s *site) {
	const n = 6
	each := rounds.Fewer(8, 2)
	results := make(chan string, n)
	for i := range n {
		go func() {
			won := 0
			for range each {
				// mkdir fails beside another holder.
				cmd := exec.Command(bin+"/repolock", "prune", "--", "sh", "-c",
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
			results <- fmt.Sprintf("%d: won %d of %d", i, won, each)
		}()
	}
	for range n {
		r := <-results
		s.t.Log(r)
		assert.That(s.t, !strings.Contains(r, "exit code"), "%v", r)
	}
	s.nothingLeft()
}

// TestOnDirectory runs the scenarios on a local directory.
func TestOnDirectory(t *testing.T) {
	t.Parallel()
	for _, c := range scenarios {
		t.Run(c.name, func(t *testing.T) { c.run(newSite(t)) })
	}
}
