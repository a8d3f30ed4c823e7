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
)

// puppet is a group of one real process in a bubble. Time goes by at once while none of its
// guards runs.
type puppet struct {
	*Group
	t    *testing.T
	good string // the program of real guards
	events
}

const noProgram = "/nonexistent"

// inBubble runs a puppet. Guards can't be started until the test has called guards.
func inBubble(t *testing.T, expiry Expiry, run func(p *puppet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := exec.Command("sleep", "1000")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must(t, c.Start())
		defer func(fake func() time.Time) { clock.Wall = fake }(clock.Wall)
		clock.Wall = func() time.Time { // the real one, as Elapsed is
			var ts unix.Timespec
			_ = unix.ClockGettime(unix.CLOCK_REALTIME, &ts)
			return time.Unix(ts.Unix())
		}
		p := &puppet{newGroup(Command{Expiry: expiry}), t, guardProgram(), make(events, 100)}
		p.cmd.Interrupted = func(why error, over bool) { p.say("interrupted %v %t", why, over) }
		p.cmd.RunsOn = func(pids []int, killed bool) { p.say("runs on %d %t", pids, killed) }
		p.pgid, p.tty.fd, p.allowance = c.Process.Pid, -1, Allow(elapsed()+time.Hour)
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

// guards sets the program of the guards to come.
func (p *puppet) guards(program string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	guardProgram = func() string { return program }
}

// loseGuard lets a guard of the group end, and returns when that is noticed.
func (p *puppet) loseGuard() {
	p.t.Helper()
	next := guardProgram()
	p.guards("/bin/true")
	g, err := startGuard()
	p.guards(next)
	if err != nil {
		p.t.Fatal(err)
	}
	p.guard = g
	p.work.Go(func() { p.keepGuard(g) })
	eventually(p.t, "the guard's end", func() bool { return guardPid(p.Group) != g.pid })
	synctest.Wait()
}

// stop lets another process stop the group.
func (p *puppet) stop() {
	_ = unix.Kill(-p.pgid, unix.SIGSTOP)
	p.stops()
}

func (p *puppet) stops() {
	p.t.Helper()
	eventually(p.t, "a stop", func() bool { return stateOf(p.pgid) == "T" })
}

// is checks whether the group is stopped now: a SIGCONT acts at once.
func (p *puppet) is(stopped bool) {
	p.t.Helper()
	if got := stateOf(p.pgid) == "T"; got != stopped {
		p.t.Errorf("stopped: %t, want %t", got, stopped)
	}
}

// TestUnguardedIsStopped: a group that has had no guard for a second is stopped until there is one,
// also if another process continues it. With the Expiry Nothing it runs on. Interrupted is called
// in any case. A guard that starts and dies at once is none.
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
			time.Sleep(unguardedGrace - 10*time.Millisecond)
			p.is(false)
			p.want(t, "interrupted "+ErrUnguarded.Error()+": "+c.why+" false")
			stops := c.expiry != Nothing
			if stops {
				p.stops()
				_ = unix.Kill(-p.pgid, unix.SIGCONT)
				time.Sleep(guard.StopInterval)
				synctest.Wait()
				p.stops()
			}
			if c.expiry == Stop {
				fails(t, p.Signal(unix.SIGCONT), ErrUnguarded)
				fails(t, p.Unpause(), ErrUnguarded)
				p.Allow(Allow(elapsed() + time.Minute))
			}
			if c.pause {
				must(t, p.Pause())
				p.stops()
			}
			time.Sleep(time.Minute)
			p.is(stops)

			p.guards(p.good)
			p.want(t, "interrupted "+ErrUnguarded.Error()+" true")
			p.is(c.pause)
			must(t, p.Unpause())
			p.is(false)
			p.Allow(Allow(0)) // the new guard has all the state that it needs
			if stops && c.expiry != Kill {
				p.stops()
			}
		})
	}
}

// TestDue: the answer of a guard continues a group that the guard, or we, had stopped, and that
// may run. It leaves a group alone that another process has stopped.
func TestDue(t *testing.T) {
	expired := func(p *puppet) { p.allowance = Allow(0) }
	for name, c := range map[string]struct {
		before    func(p *puppet) // the group is stopped then
		after     func(p *puppet) guard.Answer
		continues bool
	}{
		"another process stopped it": {nil, func(*puppet) guard.Answer { return guard.Answer{} }, false},
		"the guard had stopped it":   {nil, func(*puppet) guard.Answer { return guard.Answer{Stopped: true} }, true},
		"but it is paused": {nil, func(p *puppet) guard.Answer {
			p.paused = true
			return guard.Answer{Stopped: true}
		}, false},
		"but the terminal stopped it, too": {nil, func(p *puppet) guard.Answer {
			p.Group.stopped = true
			return guard.Answer{Stopped: true}
		}, false},
		"but its time is over again": {nil, func(p *puppet) guard.Answer {
			expired(p)
			return guard.Answer{Stopped: true}
		}, false},
		"the terminal stopped it, and BeforeContinue refuses": {nil, func(p *puppet) guard.Answer {
			p.Group.stopped, p.cmd.BeforeContinue = true, func(*Group) bool { return false }
			must(t, p.resume())
			return guard.Answer{Stopped: true}
		}, false},
		"we refused to continue it": {nil, func(p *puppet) guard.Answer {
			p.clocks = func() clock.Reading { return clock.Reading{Wall: time.Hour} }
			fails(t, p.Signal(unix.SIGCONT), ErrParted)
			p.clocks = guard.ReadClocks
			return guard.Answer{}
		}, true},
		"no guard answered Unpause": {nil, func(p *puppet) guard.Answer {
			p.paused = true
			fails(t, p.Unpause(), ErrUnguarded)
			return guard.Answer{}
		}, true},
		"the guard died": {(*puppet).loseGuard, func(*puppet) guard.Answer { return guard.Answer{} }, false},
		"the guard died when its time was over": {func(p *puppet) {
			expired(p)
			p.loseGuard()
		}, func(p *puppet) guard.Answer {
			p.Allow(Allow(elapsed() + time.Minute))
			return guard.Answer{}
		}, true},
		"the guard died with an order that it hadn't answered": {func(p *puppet) {
			p.seq++
			p.loseGuard()
		}, func(*puppet) guard.Answer { return guard.Answer{} }, true},
		"the guard died while the clocks were apart": {func(p *puppet) {
			p.handleAnswer(guard.Answer{Parted: true})
			p.loseGuard()
		}, func(*puppet) guard.Answer { return guard.Answer{} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Stop, func(p *puppet) {
				p.stop()
				if c.before != nil {
					c.before(p)
				}
				a := c.after(p)
				a.Seq = p.seq
				p.handleAnswer(a)
				p.is(!c.continues)
			})
		})
	}
}

// TestSilentGuardIsReplaced: a guard that owes an answer for three seconds is killed. Other orders
// don't give it more time.
func TestSilentGuardIsReplaced(t *testing.T) {
	for _, answers := range []bool{false, true} {
		inBubble(t, Stop, func(p *puppet) {
			ours, theirs, err := openPipes()
			must(t, err)
			defer theirs.close()
			sleep, _ := exec.LookPath("sleep")
			pid, err := spawn(sleep, []string{"sleep", "1000"}, &syscall.ProcAttr{})
			must(t, err)
			p.guard = &guardClient{pid, ours}
			for range 5 {
				p.Allow(Allow(elapsed() + time.Minute))
				time.Sleep(answerTimeout/5 - time.Millisecond)
			}
			if !exists(pid) {
				t.Error("it is killed too early")
			}
			if answers {
				p.handleAnswer(guard.Answer{Seq: p.seq})
			}
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			if !answers {
				eventually(t, "the guard's end", func() bool { return !exists(pid) })
			} else if time.Sleep(time.Hour); !exists(pid) {
				t.Error("it is killed although it has answered")
			}
		})
	}
}

// TestLooksAtClockAfterContinuing: we are stopped after the look at the clocks, and continue the
// group when it must not run any more. It is stopped again.
func TestLooksAtClockAfterContinuing(t *testing.T) {
	for want, step := range map[error]clock.Reading{ErrExpired: {Wall: 2 * time.Hour, Elapsed: 2 * time.Hour}, ErrParted: {Wall: time.Hour}} {
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
			fails(t, p.Signal(unix.SIGCONT), want)
			p.stops()
			p.clocks = guard.ReadClocks
			p.handleAnswer(guard.Answer{}) // now it may
			p.is(false)
		})
	}
}

// TestRunsOn: RunsOn reports a process that runs in a paused group, because another process continues
// it or it can't be signalled, and no more once the group may run.
func TestRunsOn(t *testing.T) {
	inBubble(t, Stop, func(p *puppet) {
		must(t, p.Pause())
		p.stops()
		time.Sleep(time.Minute)
		_ = unix.Kill(-p.pgid, unix.SIGCONT)
		began := time.Now()
		p.want(t, fmt.Sprintf("runs on [%d] false", p.pgid))
		if d := time.Since(began); d < stopTime || d > stopTime+5*time.Second {
			t.Errorf("reported after %v", d)
		}
		p.want(t, fmt.Sprintf("runs on [%d] false", p.pgid))
		p.mu.Lock()
		p.paused = false
		p.mu.Unlock()
		time.Sleep(time.Minute)
		if len(p.events) > 0 {
			t.Error(<-p.events)
		}
	})
}

// TestAwake: a process that is stopped doesn't run on, unless it was killed; a zombie never does, nor
// does a process of another group.
func TestAwake(t *testing.T) {
	inBubble(t, Stop, func(p *puppet) {
		want := func(killed bool, pids ...int) {
			t.Helper()
			if got := awake(p.pgid, killed, denied); !slices.Equal(got, pids) {
				t.Errorf("%d are awake, want %d", got, pids)
			}
		}
		want(false, p.pgid)
		p.stop()
		want(false)
		want(true, p.pgid)
		must(t, p.Kill())
		eventually(t, "its end", func() bool { return stateOf(p.pgid) == "Z" })
		want(true)
	})
}

// TestNoGroupHasNoProcesses: a command that is ended before its group is there has no processes that
// run on, and other programs' are not taken for them.
func TestNoGroupHasNoProcesses(t *testing.T) {
	inBubble(t, Stop, func(p *puppet) {
		p.pgid = 0
		fails(t, p.Kill(), os.ErrProcessDone)
		time.Sleep(2 * firstReminder)
		if len(p.events) > 0 {
			t.Error(<-p.events)
		}
	})
}

// TestReminders: a process that runs on is reported after a moment, then less and less often. One
// that can't be killed is reported at once.
func TestReminders(t *testing.T) {
	r := runaways{denied: func(pid int) bool { return pid == 77 }}
	us, begin := []int{unix.Getpid()}, time.Now()
	var told string
	for at := time.Duration(0); at < 3*time.Minute; at += 500 * time.Millisecond {
		if pids, due := r.look(us, at >= 2*time.Minute, false, begin.Add(at)); due {
			told += fmt.Sprint(" ", at)
			if !slices.Equal(pids, us) {
				t.Errorf("at %v: %d", at, pids)
			}
		}
	}
	if want := " 2s 12s 32s 1m12s 2m2s 2m12s 2m32s"; told != want {
		t.Errorf("reported at %s, want %s", told, want)
	}
	if pids, due := r.look([]int{unix.Getpid(), 77}, false, false, begin.Add(30*time.Minute)); !due || !slices.Equal(pids, []int{77}) {
		t.Errorf("%d reported, want at once the one that can't be signalled", pids)
	}
	if _, due := r.look(nil, true, true, begin.Add(time.Hour)); !due {
		t.Error("processes that aren't shown are not reported")
	}
	if _, due := r.look(nil, true, false, begin.Add(2*time.Hour)); due {
		t.Error("none reported")
	}
}
