//go:build linux

package procgroup

import (
	"os/exec"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procgroup/guard"
	"github.com/repolock/repolock/internal/test/assert"
)

// pid returns the pid of the process that ticks.
func (k ticker) pid() int {
	text, err := exec.Command("cat", k.path+".pid").Output()
	assert.OK(k.t, err)
	pid, err := strconv.Atoi(string(text))
	assert.OK(k.t, err)
	return pid
}

// TestContinuedByOthers: another process sends SIGCONT to a stopped group again and again. Whether the SIGCONT is for
// the leader, a child or the group, and whatever has stopped the group, the group is killed, and both is reported.
func TestContinuedByOthers(t *testing.T) {
	child := []string{"sh", "-c", `"$@" & wait`, "sh"}
	targets := []struct {
		name    string
		wrapper []string
		pid     func(l *live) int
	}{
		{"leader", nil, func(l *live) int { return l.pgid }},
		{"child", child, func(l *live) int { return l.k.pid() }},
		{"group", child, func(l *live) int { return -l.pgid }},
	}
	for why, stop := range map[string]func(l *live){
		"paused":  func(l *live) { assert.OK(t, l.Pause()) },
		"expired": func(l *live) { l.Allow(Allow(0)) },
		"parted": func(l *live) {
			a := Allow(elapsed() + time.Hour)
			a.Seen.Wall += time.Hour
			l.Allow(a)
		},
	} {
		for _, c := range targets {
			for _, pause := range []time.Duration{0, 50 * time.Millisecond} {
				t.Run(why+" "+c.name+" "+pause.String(), func(t *testing.T) {
					l := run(t, Stop, c.wrapper...)
					pid := c.pid(l)
					stop(l)
					assert.OK(t, l.awaitAnswer(nil))
					l.k.quiet()
					for over := false; !over; {
						_ = unix.Kill(pid, unix.SIGCONT)
						select {
						case <-l.Done():
							over = true
						case <-time.After(pause):
						}
					}
					assert.Equal(t, l.Status(), Status{Signal: unix.SIGKILL})
					if why == "parted" {
						l.want(t, "interrupted "+ErrClockStepped.Error()+" false")
					}
					l.want(t, "continued by another, killed false")
					l.want(t, "continued by another, killed true")
				})
			}
		}
	}
}

// TestContinuedBesideUs: the guard does the same while we are stopped.
func TestContinuedBesideUs(t *testing.T) {
	k := newTicker(t)
	p := start(t, self("parent", "-usr", "--"), []string{"sh", "-c", `"$@" & wait`, "sh"}, k.args())
	k.runs()
	_ = p.cmd.Process.Signal(unix.SIGUSR1)
	p.want("pause: <nil>")
	_ = p.cmd.Process.Signal(unix.SIGSTOP)
	k.quiet()
	pid := k.pid()
	eventually(t, "its end", func() bool {
		_ = unix.Kill(pid, unix.SIGCONT)
		return !exists(pid)
	})
}

// TestContinuedSeldom: a group that another process continues three times is stopped each time, and goes on later.
// Then the count begins anew.
func TestContinuedSeldom(t *testing.T) {
	l := run(t, Stop)
	for range 2 {
		assert.OK(t, l.Pause())
		l.k.quiet()
		for range guard.MostContinued {
			_ = unix.Kill(-l.pgid, unix.SIGCONT)
			l.k.quiet()
		}
		l.want(t, "continued by another, killed false")
		assert.OK(t, l.Unpause())
		for range 10 { // and isn't stopped again
			l.k.runs()
		}
	}
	assert.Equal(t, len(l.events), 0)
}

// TestContinuedUnguarded: a group without a guard that another process continues is stopped at once, and killed at the
// fourth time.
func TestContinuedUnguarded(t *testing.T) {
	inBubble(t, Stop, func(p *puppet) {
		p.cmd.Continued = func(killed bool) { p.say("continued by another, killed %t", killed) }
		p.loseGuard()
		p.want(t, "interrupted "+ErrUnguarded.Error()+": start the guard "+noProgram+": no such file or directory false")
		for i := range guard.MostContinued + 1 {
			p.stops()
			_ = unix.Kill(-p.pgid, unix.SIGCONT)
			time.Sleep(guard.HoldInterval)
			synctest.Wait()
			if i == 0 {
				p.want(t, "continued by another, killed false")
			}
		}
		p.want(t, "continued by another, killed true")
		eventually(t, "its end", func() bool { return !exists(p.pgid) })
	})
}

// TestLeaderContinued: the kernel reports each SIGCONT to the leader. The group is stopped at once, without the guard,
// and killed at the fourth time. Our own SIGCONT, whose report can come after the next stop, doesn't count, and a
// resume begins the count anew.
func TestLeaderContinued(t *testing.T) {
	inBubble(t, Stop, func(p *puppet) {
		p.cmd.Continued = func(killed bool) { p.say("continued by another, killed %t", killed) }
		others := func(n int) {
			for range n {
				_ = unix.Kill(-p.pgid, unix.SIGCONT)
				p.continuedByOthers()
				p.stops()
			}
		}
		for range 2 {
			assert.OK(t, p.Pause())
			p.stops()
			others(guard.MostContinued)
			p.want(t, "continued by another, killed false")
			p.page.Follow(p.page.Version() + 1)
			sigconts := p.page.SIGCONTs()
			assert.OK(t, p.Unpause())
			assert.Equal(t, p.page.SIGCONTs(), sigconts+1)
			p.is(false)
			assert.OK(t, p.Pause())
			p.continuedByOthers() // of our own SIGCONT
			assert.Equal(t, p.others.seen, 0)
		}
		others(guard.MostContinued)
		p.want(t, "continued by another, killed false")
		_ = unix.Kill(-p.pgid, unix.SIGCONT)
		p.continuedByOthers()
		p.want(t, "continued by another, killed true")
		eventually(t, "its end", func() bool { return !exists(p.pgid) })
		assert.Equal(t, len(p.events), 0)
	})
}

// TestKilledByTheGuard: the group ends before the guard can report that it has killed the group.
func TestKilledByTheGuard(t *testing.T) {
	inBubble(t, Stop, func(p *puppet) {
		p.cmd.Continued = func(killed bool) { p.say("continued by another, killed %t", killed) }
		p.others.seen = guard.MostContinued + 1 // as the guard's count on the page
		p.finish()
		p.want(t, "continued by another, killed false")
		p.want(t, "continued by another, killed true")
	})
}
