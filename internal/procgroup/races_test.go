//go:build linux

package procgroup

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procgroup/guard"
)

// We are stopped after the look at the clock, and continue the group when its time is over:
// the guard stops it again.
func TestLooksAtClockAfterContinuing(t *testing.T) {
	for name, late := range map[string]struct {
		step clock.Reading
		want error
	}{
		"the time is over": {clock.Reading{Wall: time.Hour, Elapsed: time.Hour}, ErrExpired},
		"the clocks part":  {clock.Reading{Wall: time.Hour}, ErrParted},
	} {
		k := newTicker(t)
		g, err := begin(Command{Args: k.args()}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		k.runs()
		if err := g.Pause(); err != nil {
			t.Fatal(err)
		}
		// The guard's clocks are the machine's, so it stops nothing.
		g.mu.Lock()
		g.paused = false
		looks := 0
		g.clocks = func() clock.Reading {
			now := guard.ReadClocks()
			if looks++; looks > 1 {
				now.Wall += late.step.Wall
				now.Elapsed += late.step.Elapsed
			}
			return now
		}
		err = g.continueLocked()
		g.clocks = guard.ReadClocks
		g.paused = true // for any answer of the guard
		g.mu.Unlock()
		if err != late.want || looks != 2 {
			t.Errorf("%s: %v after %d looks", name, err, looks)
		}
		k.quiet(300 * time.Millisecond)
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A process of the group starts another and ends, between the reading of the list of all
// processes and the look at it. That list has neither, and the group isn't empty.
func TestSweepLooksTwice(t *testing.T) {
	run := func(pgid int, script string) *exec.Cmd {
		c := exec.Command("sh", "-c", script)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: pgid}
		return c
	}
	first := run(0, "exit 0")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	l := leader{pid: first.Process.Pid, ended: true}
	last := run(l.pid, "read line; sleep 1000 & echo $!")
	in, err := last.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := last.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := last.Start(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*exec.Cmd{first, last} { // or sweep reaps them
		owned.Lock()
		owned.pids[c.Process.Pid] = true
		owned.Unlock()
		defer disown(c.Process.Pid)
	}
	defer first.Wait()
	eventually(t, "the leader's end", func() bool {
		_, dead := look(unix.P_PID, l.pid, unix.WEXITED|unix.WNOWAIT)
		return dead
	})
	defer unix.Kill(-l.pid, unix.SIGKILL)

	looks := 0
	defer func(f func()) { listed = f }(listed)
	listed = func() {
		if looks++; looks > 1 {
			return
		}
		if _, err := in.Write([]byte("go\n")); err != nil {
			t.Error(err)
		}
		if _, err := out.Read(make([]byte, 100)); err != nil { // it has started the other
			t.Error(err)
		}
		if err := last.Wait(); err != nil {
			t.Error(err)
		}
	}
	if n := sweep(&l); n != 1 {
		t.Errorf("%d processes of the group run on, want 1 (%d looks)", n, looks)
	}
}
