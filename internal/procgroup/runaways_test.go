//go:build linux

package procgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// RunsOn reports a process that runs on in a paused group. Here other processes continue it.
func TestRunsOnIsTold(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "--"), k.args()))
	k.runs()
	p.tell("pause", "<nil>")
	k.quiet(stopTime + 500*time.Millisecond)
	if err := unix.Kill(-p.pgid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	k.runs()
	p.want(fmt.Sprintf("runs on [%d] false", p.pgid))
	p.tell("unpause", "<nil>")
	p.kill()
	p.want("done killed by signal 9 (killed)")
}

// TestNoGroupHasNoProcesses: a command that is ended before its group is there has no processes that
// run on, and other programs' are not taken for them.
func TestNoGroupHasNoProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Group{done: make(chan struct{}), sent: map[syscall.Signal]bool{}}
		g.cmd.RunsOn = func(pids []int, _ bool) { t.Errorf("%d processes run on, of no group", len(pids)) }
		if err := g.Kill(); !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		time.Sleep(2 * firstReminder)
		close(g.done)
		g.work.Wait()
	})
}

func TestAwake(t *testing.T) {
	run := func(pgid int) *exec.Cmd {
		c := exec.Command("sleep", "1000")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: pgid}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	leader := run(0)
	pgid := leader.Process.Pid
	others := []*exec.Cmd{run(pgid), run(pgid), run(0)}
	t.Cleanup(func() {
		for _, c := range append(others, leader) {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	stopped, dead := others[0].Process, others[1].Process
	want := func(killed bool, pids ...int) {
		t.Helper()
		slices.Sort(pids)
		eventually(t, fmt.Sprintf("awake (killed: %t) %d", killed, pids), func() bool {
			got := awake(pgid, killed, denied)
			slices.Sort(got)
			return slices.Equal(got, pids)
		})
	}
	want(false, pgid, stopped.Pid, dead.Pid)
	if err := stopped.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := dead.Kill(); err != nil { // it is not reaped yet
		t.Fatal(err)
	}
	want(false, pgid)
	want(true, pgid, stopped.Pid)
}

// A process that waits for a disk stops when its wait ends, unless the signal never reached
// it.
func TestActive(t *testing.T) {
	for _, test := range []struct {
		state        string
		ours, others bool
	}{
		{"R", true, true}, {"S", true, true}, {"D", false, true}, {"I", true, true},
		{"T", false, false}, {"t", false, false}, {"Z", false, false}, {"X", false, false},
	} {
		denied := func(pid int) bool { return pid == 2 }
		if ours, others := active(test.state, 1, denied), active(test.state, 2, denied); ours != test.ours || others != test.others {
			t.Errorf("%s: %t, and %t if it can't be signalled", test.state, ours, others)
		}
	}
}

// A process that runs on is reported after a moment, then less and less often. One that can't
// be killed is reported at once.
func TestReminders(t *testing.T) {
	r := runaways{denied: func(pid int) bool { return pid == 77 }}
	us, begin := []int{unix.Getpid()}, time.Now()
	var told []string
	for at := time.Duration(0); at < 3*time.Minute; at += 500 * time.Millisecond {
		if pids, due := r.look(us, at >= 2*time.Minute, false, begin.Add(at)); due {
			if !slices.Equal(pids, us) {
				t.Errorf("at %v: %d", at, pids)
			}
			told = append(told, at.String())
		}
	}
	if got, want := strings.Join(told, " "), "2s 12s 32s 1m12s 2m2s 2m12s 2m32s"; got != want {
		t.Errorf("reported at %s, want %s", got, want)
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
