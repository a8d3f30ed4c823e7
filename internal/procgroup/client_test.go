//go:build linux

package procgroup

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup/guard"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/states"
)

// puppet is a group with one real process, in a bubble. While none of its guards runs, no test waits.
type puppet struct {
	*Group
	t    *testing.T
	good string // the program of real guards
	events
}

const noProgram = "/nonexistent"

// inBubble runs a test on a puppet. No guard can be started before the test calls guards.
func inBubble(t *testing.T, expiry Expiry, run func(p *puppet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := exec.Command("sleep", "1000")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		assert.OK(t, c.Start())
		defer func(fake func() time.Time) { clock.Wall = fake }(clock.Wall)
		defer func(is func(time.Time) bool) { clock.InBubble = is }(clock.InBubble)
		clock.InBubble = func(time.Time) bool { return false } // guards read the clock since boot
		clock.Wall = func() time.Time {                        // Elapsed is the real clock too
			var ts unix.Timespec
			_ = unix.ClockGettime(unix.CLOCK_REALTIME, &ts)
			return time.Unix(ts.Unix())
		}
		p := &puppet{newGroup(Command{Expiry: expiry}), t, guardProgram(), make(events, 100)}
		p.cmd.Interrupted = func(why error, over bool) { p.say("interrupted %v %t", why, over) }
		p.cmd.RunsOn = func(pids []int, killed bool) { p.say("runs on %d %t", pids, killed) }
		p.begun = true
		p.pgid, p.tty.fd, p.allowance = c.Process.Pid, -1, Allow(elapsed()+time.Hour)
		assert.OK(t, p.openPage())
		p.page.Watch(p.pgid, expiry)
		p.page.Allow(p.allowance)
		defer func(before func() string) { guardProgram = before }(guardProgram)
		p.guards(noProgram)
		defer func() {
			p.finish()
			close(p.done)
			p.work.Wait()
			_ = c.Process.Kill()
			_ = c.Wait()
		}()
		run(p)
	})
}

// guards sets the program of later guards.
func (p *puppet) guards(program string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	guardProgram = func() string { return program }
}

// loseGuard lets the guard of the group end, and returns when the group has noticed it.
func (p *puppet) loseGuard() {
	p.t.Helper()
	next := guardProgram()
	p.guards("/bin/true")
	g, err := p.startGuard()
	p.guards(next)
	assert.OK(p.t, err)
	p.guard = g
	p.work.Go(func() { p.keepGuard(g) })
	eventually(p.t, "the guard's end", func() bool { return guardPid(p.Group) != g.pid })
	synctest.Wait()
}

func (p *puppet) expire() { p.allowance = Allow(0) }

// answer is the answer of a guard that follows the allowance and has perhaps stopped the group.
func (p *puppet) answer(stopped bool) {
	if stopped {
		p.page.Stop(func() {})
	}
	p.page.Follow(p.page.Version())
	p.answered()
}

// stop stops the group as another process can.
func (p *puppet) stop() {
	_ = unix.Kill(-p.pgid, unix.SIGSTOP)
	p.stops()
}

func (p *puppet) stops() {
	p.t.Helper()
	eventually(p.t, "a stop", func() bool { return states.Of(p.pgid) == "T" })
}

// is checks whether the group is stopped now. It needn't wait, because a SIGCONT takes effect at once.
func (p *puppet) is(stopped bool) {
	p.t.Helper()
	assert.Equal(p.t, states.Of(p.pgid) == "T", stopped, "stopped")
}

// TestUnguardedIsStopped: after a second without a guard the group is stopped until there is one, even if
// another process continues it. With the Expiry Nothing it runs on. Interrupted is called in any case. A
// guard that dies at its start is no guard.
func TestUnguardedIsStopped(t *testing.T) {
	missing := "start the guard " + noProgram + ": no such file or directory"
	for _, c := range []struct {
		expiry  Expiry
		program string
		why     string
		pause   bool
	}{
		{Stop, noProgram, missing, false},
		{Stop, noProgram, missing, true},
		{Stop, "/bin/true", errSilent.Error(), false},
		{Kill, noProgram, missing, false},
		{Nothing, noProgram, missing, false},
	} {
		inBubble(t, c.expiry, func(p *puppet) {
			p.guards(c.program)
			p.loseGuard()
			lost := time.Now()
			time.Sleep(unguardedGrace - 10*time.Millisecond)
			p.is(false)
			p.want(t, "interrupted "+ErrUnguarded.Error()+": "+c.why+" false")
			assert.That(t, time.Since(lost) <= unguardedGrace+guard.StopInterval, "it was stopped after %v", time.Since(lost))
			stops := c.expiry != Nothing
			if stops {
				p.stops()
				_ = unix.Kill(-p.pgid, unix.SIGCONT)
				time.Sleep(guard.StopInterval)
				synctest.Wait()
				p.stops()
			}
			if c.expiry == Stop {
				assert.Is(t, p.Signal(unix.SIGCONT), ErrUnguarded)
				assert.Is(t, p.Unpause(), ErrUnguarded)
				p.Allow(Allow(elapsed() + time.Minute))
			}
			if c.pause {
				assert.OK(t, p.Pause())
				p.stops()
			}
			time.Sleep(time.Minute)
			p.is(stops)

			p.guards(p.good)
			p.want(t, "interrupted "+ErrUnguarded.Error()+" true")
			p.is(c.pause)
			assert.OK(t, p.Unpause())
			p.is(false)
			p.Allow(Allow(0)) // the new guard follows orders
			if stops && c.expiry != Kill {
				p.stops()
			}
		})
	}
}

// TestSecondGuardIsLost: the guard is lost twice. Each time others are tried at once, and then after pauses that double
// from 50 ms to 5 s. The group runs on for a second, and the interruption is reported.
func TestSecondGuardIsLost(t *testing.T) {
	inBubble(t, Stop, func(p *puppet) {
		for range 2 {
			p.guards(noProgram)
			if old := guardPid(p.Group); old == 0 {
				p.loseGuard()
			} else {
				_ = unix.Kill(old, unix.SIGKILL)
				eventually(t, "the guard's end", func() bool { return guardPid(p.Group) != old })
				synctest.Wait()
			}
			lost := time.Now()
			var tries []time.Duration
			p.mu.Lock()
			before := guardProgram
			guardProgram = func() string {
				tries = append(tries, time.Since(lost).Round(10*time.Millisecond))
				return noProgram
			}
			p.mu.Unlock()
			p.want(t, "interrupted "+ErrUnguarded.Error()+": start the guard "+noProgram+": no such file or directory false")
			d := time.Since(lost).Round(10 * time.Millisecond)
			assert.That(t, d >= unguardedGrace && d <= unguardedGrace+firstPause, "it was stopped after %v", d)
			time.Sleep(30*time.Second - d)
			p.mu.Lock()
			guardProgram = before
			p.mu.Unlock()
			var pauses []time.Duration
			last := time.Duration(0)
			for _, at := range tries {
				if at != last { // an error has the program, too
					pauses, last = append(pauses, at-last), at
				}
			}
			want := []time.Duration{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000}
			assert.Need(t, len(pauses) >= len(want)-1, "it is tried after %v", pauses)
			for i, pause := range pauses[:len(want)-1] {
				want := want[i] * time.Millisecond
				assert.That(t, pause >= want && pause <= want+firstPause, "it is tried after %v", pauses)
			}
			p.guards(p.good)
			p.want(t, "interrupted "+ErrUnguarded.Error()+" true")
			p.is(false)
		}
	})
}

// TestGivesUpOnASilentGuard: Unpause fails after 10 s without an answer, each time.
func TestGivesUpOnASilentGuard(t *testing.T) {
	inBubble(t, Stop, func(p *puppet) {
		for range 2 {
			assert.OK(t, p.Pause())
			p.page.Follow(p.page.Version())
			began := time.Now()
			assert.Is(t, p.Unpause(), ErrUnguarded)
			assert.Equal(t, time.Since(began), 10*time.Second)
		}
	})
}

// TestDue: an answer of a guard continues a group that may run, if the guard or we had stopped it. It doesn't
// continue a group that another process has stopped.
func TestDue(t *testing.T) {
	for name, c := range map[string]struct {
		before    func(p *puppet) // is called after the group was stopped
		after     func(p *puppet) // is called after before
		stopped   bool            // the guard answers that it had stopped the group
		continues bool
	}{
		"another process stopped it":       {},
		"the guard had stopped it":         {stopped: true, continues: true},
		"but it is paused":                 {after: func(p *puppet) { p.paused = true }, stopped: true},
		"but the terminal stopped it, too": {after: func(p *puppet) { p.Group.stopped = true }, stopped: true},
		"but its time is over again":       {after: (*puppet).expire, stopped: true},
		"the terminal stopped it, and BeforeContinue refuses": {after: func(p *puppet) {
			p.Group.stopped, p.cmd.BeforeContinue = true, func(*Group) bool { return false }
			assert.OK(t, p.resume())
		}, stopped: true},
		"we refused to continue it": {after: func(p *puppet) {
			p.clocks = func() clock.Reading { return clock.Reading{Wall: time.Hour} }
			assert.Is(t, p.Signal(unix.SIGCONT), ErrClockStepped)
			p.clocks = guard.ReadClocks
		}, continues: true},
		"no guard answered Unpause": {after: func(p *puppet) {
			p.paused = true
			p.page.Follow(p.page.Version())
			assert.Is(t, p.Unpause(), ErrUnguarded)
		}, continues: true},
		"the guard died": {before: (*puppet).loseGuard},
		"the guard died when it had stopped it": {before: func(p *puppet) {
			p.page.Stop(p.loseGuard)
		}, continues: true},
		"we continued it during the stop": {before: func(p *puppet) {
			p.page.Stop(func() { assert.OK(p.t, p.Signal(unix.SIGCONT)) })
			p.stop()
		}, continues: true},
		"we continued it after the stop": {before: func(p *puppet) {
			p.page.Stop(p.stop)
			assert.OK(p.t, p.Signal(unix.SIGCONT))
			p.stop()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Stop, func(p *puppet) {
				p.stop()
				for _, do := range []func(*puppet){c.before, c.after} {
					if do != nil {
						do(p)
					}
				}
				p.answer(c.stopped)
				p.is(!c.continues)
			})
		})
	}
	inBubble(t, Stop, func(p *puppet) {
		p.page.Stop(func() {
			p.stop()
			p.loseGuard() // killed between its signal and the second count
			p.answer(false)
			p.is(false)
		})
	})
	inBubble(t, Stop, func(p *puppet) {
		p.page.Stop(p.stop)
		p.Allow(Allow(elapsed() + time.Minute))
		p.answered() // the guard doesn't follow that yet
		p.is(true)
		p.answer(false)
		p.is(false)
	})
}

// TestSilentGuardIsReplaced: a guard that doesn't follow an allowance within answerTimeout is killed, and while the
// command doesn't run within startTimeout. Later allowances don't extend that time.
func TestSilentGuardIsReplaced(t *testing.T) {
	never := func(*puppet) {}
	for _, c := range []struct {
		follows int // that many of five allowances
		killed  time.Duration
		is      func(*puppet)
	}{
		{0, answerTimeout, never}, {3, answerTimeout + 3*answerTimeout/5, never}, {5, 0, never},
		{0, startTimeout, func(p *puppet) { p.begun = false }},
		{0, startTimeout, func(p *puppet) { p.unguarded = ErrUnguarded }},
	} {
		follows, killed := c.follows, c.killed
		inBubble(t, Stop, func(p *puppet) {
			c.is(p)
			ours, theirs, err := openPipes()
			assert.OK(t, err)
			defer theirs.close()
			sleep, _ := exec.LookPath("sleep")
			pid, err := spawn(sleep, []string{"sleep", "1000"}, &syscall.ProcAttr{})
			assert.OK(t, err)
			p.guard = &guardClient{pid, ours}
			for i := range 5 {
				p.Allow(Allow(elapsed() + time.Minute))
				if i < follows {
					p.page.Follow(p.page.Version())
				}
				time.Sleep(answerTimeout/5 - time.Millisecond)
			}
			if killed == 0 {
				time.Sleep(time.Hour)
				assert.That(t, exists(pid), "it is killed although it follows")
				return
			}
			time.Sleep(killed - answerTimeout)
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 5e7}, nil) // real time, in which a process that was killed ends
			assert.That(t, exists(pid), "it is killed too early")
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			eventually(t, "the guard's end", func() bool { return !exists(pid) })
		})
	}
}

// TestLooksAtClockAfterContinuing: if we are stopped between the look at the clocks and the SIGCONT, the
// group can be continued too late. Then it is stopped again.
func TestLooksAtClockAfterContinuing(t *testing.T) {
	for want, step := range map[error]clock.Reading{ErrExpired: {Wall: 2 * time.Hour, Elapsed: 2 * time.Hour}, ErrClockStepped: {Wall: time.Hour}} {
		inBubble(t, Stop, func(p *puppet) {
			p.stop()
			looks := 0
			p.clocks = func() clock.Reading {
				now := guard.ReadClocks()
				if looks++; looks > 1 {
					now.Wall += step.Wall
					now.Elapsed += step.Elapsed
				}
				return now
			}
			assert.Is(t, p.Signal(unix.SIGCONT), want)
			p.stops()
			p.clocks = guard.ReadClocks
			p.answer(false) // now it may run
			p.is(false)
		})
	}
}

// TestRunsOn: RunsOn reports a process that another process continues in a paused group. It reports nothing
// when the group may run, and nothing of a command that is ended before its group exists.
func TestRunsOn(t *testing.T) {
	inBubble(t, Stop, func(p *puppet) {
		assert.OK(t, p.Pause())
		p.stops()
		time.Sleep(time.Minute)
		_ = unix.Kill(-p.pgid, unix.SIGCONT)
		began := time.Now()
		p.want(t, fmt.Sprintf("runs on [%d] false", p.pgid))
		d := time.Since(began)
		assert.That(t, d >= stopTime && d <= stopTime+5*time.Second, "reported after %v", d)
		p.want(t, fmt.Sprintf("runs on [%d] false", p.pgid))
		p.mu.Lock()
		p.paused = false
		p.mu.Unlock()
		time.Sleep(time.Minute)
		if len(p.events) > 0 {
			t.Error(<-p.events)
		}
	})
	inBubble(t, Stop, func(p *puppet) {
		p.pgid = 0
		assert.Is(t, p.Kill(), os.ErrProcessDone)
		time.Sleep(2 * firstReminder)
		if len(p.events) > 0 {
			t.Error(<-p.events)
		}
	})
}

// TestRunningMembers: a stopped process counts as running only if the group was killed. A zombie never does.
func TestRunningMembers(t *testing.T) {
	inBubble(t, Stop, func(p *puppet) {
		want := func(killed bool, pids ...int) {
			t.Helper()
			assert.Equal(t, runningMembers(p.pgid, killed, denied), pids)
		}
		want(false, p.pgid)
		p.stop()
		want(false)
		want(true, p.pgid)
		assert.OK(t, p.Kill())
		eventually(t, "its end", func() bool { return states.Of(p.pgid) == "Z" })
		want(true)
	})
}

// TestReminders: a process that runs on is reported after stopTime, and then at growing intervals. A process
// that we can't signal is reported at once.
func TestReminders(t *testing.T) {
	r := runaways{denied: func(pid int) bool { return pid == 77 }}
	us, begin := []int{unix.Getpid()}, time.Now()
	var told string
	for at := time.Duration(0); at < 3*time.Minute; at += 500 * time.Millisecond {
		if pids, due := r.look(us, at >= 2*time.Minute, false, begin.Add(at)); due {
			told += fmt.Sprint(" ", at)
			assert.Equal(t, pids, us, "at %v", at)
		}
	}
	want := " 2s 12s 32s 1m12s 2m2s 2m12s 2m32s"
	assert.Equal(t, told, want, "reported at")
	pids, due := r.look([]int{unix.Getpid(), 77}, false, false, begin.Add(30*time.Minute))
	assert.That(t, due && slices.Equal(pids, []int{77}), "%d reported, want at once the one that can't be signalled", pids)
	_, due = r.look(nil, true, true, begin.Add(time.Hour))
	assert.That(t, due, "processes that aren't shown are not reported")
	_, due = r.look(nil, true, false, begin.Add(2*time.Hour))
	assert.That(t, !due, "none reported")
}
