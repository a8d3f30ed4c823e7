//go:build linux

package procgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procgroup/guard"
	"github.com/repolock/repolock/internal/test/states"
)

// We are stopped, and can do nothing.
func TestStopsAtExpiry(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "--"), k.args()))
	k.runs()
	end := elapsed() + 1500*time.Millisecond // or a little later
	p.tell("allow 1500ms", "<nil>")
	p.signal(unix.SIGSTOP)
	eventually(t, "a stop", k.stopped)
	if early := end - elapsed(); early > 0 {
		t.Errorf("it was stopped %v before its time was over", early)
	}
	k.quiet(300 * time.Millisecond)

	// If another process continues the group, the guard stops it again.
	for range 3 {
		if err := unix.Kill(-p.pgid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(guard.StopInterval + 100*time.Millisecond)
		k.quiet(100 * time.Millisecond)
	}

	p.signal(unix.SIGCONT)
	k.quiet(100 * time.Millisecond)
	p.tell("unpause", ErrExpired.Error())
	p.tell("allow 10s", "<nil>")
	k.runs()
}

// We are stopped before the guard knows of the command: it must not run until we go on, and
// never if its time is over by then.
func TestStoppedWhileStarting(t *testing.T) {
	for _, expiry := range []string{"stop", "kill", "nothing"} {
		t.Run(expiry, func(t *testing.T) {
			t.Parallel()
			k := newTicker(t)
			p := launch(t, concat(self("parent", "-halt", "-until", "5s", "-expiry", expiry, "--"), k.args()))
			p.expect("forked")
			eventually(t, "the parent is stopped", func() bool { return states.Of(p.cmd.Process.Pid) == "T" })
			time.Sleep(5 * time.Second)
			if ticks := k.all(); len(ticks) > 0 {
				t.Errorf("it ran %d times before a guard watched it", len(ticks))
			}
			p.signal(unix.SIGCONT)
			if expiry == "nothing" {
				p.expect("started")
				k.runs()
				return
			}
			p.want("failed " + ErrExpired.Error())
			if ticks := k.all(); len(ticks) > 0 {
				t.Errorf("it ran %d times after its time", len(ticks))
			}
		})
	}
}

// We are killed before the guard knows of the command.
func TestKilledWhileStarting(t *testing.T) {
	k := newTicker(t)
	p := launch(t, concat(self("parent", "-halt", "--"), k.args()))
	p.expect("forked")
	p.signal(unix.SIGKILL)
	time.Sleep(500 * time.Millisecond)
	if ticks := k.all(); len(ticks) > 0 {
		t.Errorf("it ran %d times", len(ticks))
	}
	eventually(t, "the starter's end", func() bool { return len(inSession(p.cmd.Process.Pid)) == 0 })
}

func TestKillsAtExpiry(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "-expiry", "kill", "--", "sh", "-c", `"$@" & wait`, "sh"), k.args()))
	k.runs()
	end := elapsed() + 500*time.Millisecond // or a little later
	p.order("allow 500ms")
	p.want("done killed by signal 9 (killed)")
	if early := end - elapsed(); early > 0 {
		t.Errorf("it was killed %v before its time was over", early)
	}
	k.quiet(100 * time.Millisecond)
}

func TestDoesNothingAtExpiry(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "-until", "100ms", "-expiry", "nothing", "--"), k.args()))
	sleepUntil(p.until + time.Second)
	k.runs()
	p.signal(unix.SIGKILL)
	eventually(t, "the end", func() bool { return running(p.pgid) == 0 })
}

func TestAllowanceIsExtended(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "-until", "2s", "--"), k.args()))
	p.tell("allow 1m", "<nil>")
	sleepUntil(p.until + time.Second)
	k.runs()
	p.tell("allow 500ms", "<nil>")
	k.quiet(200 * time.Millisecond)
}

// The death signal is for the leader only; the guard kills the rest.
func TestWeAreKilled(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "--", "sh", "-c", `"$@" & (setsid true; sleep 1000) & sleep 1000`, "sh"), k.args()))
	k.runs()
	p.signal(unix.SIGKILL)
	eventually(t, "the end", func() bool { return running(p.pgid) == 0 })
	eventually(t, "the guard's end", func() bool { return !exists(p.guard) })
}

func TestGuardIsKilled(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "--"), k.args()))
	for range 4 {
		guard := p.current()
		if err := unix.Kill(guard, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another guard", func() bool { g := p.ask("guard"); return g != 0 && g != guard })
		p.tell("unpause", "<nil>") // it has answered
	}
	// The next one knows the allowance from the start.
	p.tell("allow 1s", "<nil>")
	guard := p.current()
	if err := unix.Kill(guard, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another guard", func() bool { g := p.ask("guard"); return g != 0 && g != guard })
	p.signal(unix.SIGSTOP)
	k.quiet(200 * time.Millisecond)
}

// Neither the terminal, nor pipes, nor process groups reach the guard, and it holds none of
// them up.
func TestGuardIsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inherited")
	p := start(t, concat([]string{"sh", "-c", `exec 9>` + path + `; exec "$@"`, "sh"}, self("parent", "--", "sleep", "1000")))
	p.tell("unpause", "<nil>") // it is up
	if got, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/9", p.pgid)); err != nil || got != path {
		t.Errorf("the command has %s (%v)", got, err)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.guard))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if got, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", p.guard, f.Name())); got == path {
			t.Error("it keeps a file open")
		}
	}
	if sid, err := unix.Getsid(p.guard); err != nil || sid != p.guard {
		t.Errorf("its session is %d (%v)", sid, err)
	}
	for name, want := range map[string]string{"fd/1": os.DevNull, "fd/2": os.DevNull, "cwd": "/"} {
		if got, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", p.guard, name)); err != nil || got != want {
			t.Errorf("%s is %s (%v)", name, got, err)
		}
	}
	for _, sig := range []unix.Signal{1, 2, 3, 10, 12, 13, 15, 20, 21, 22} {
		if err := unix.Kill(p.guard, sig); err != nil {
			t.Fatal(err)
		}
	}
	p.tell("unpause", "<nil>")
	if g := p.ask("guard"); g != p.guard {
		t.Error("it was replaced")
	}
}

func TestGuardDoesNotAnswer(t *testing.T) {
	p := start(t, self("parent", "-patience", "500ms", "--", "sleep", "1000"))
	// On a busy machine a guard can be given up before it has answered.
	answers := func() bool { return p.do("unpause") == "<nil>" }
	eventually(t, "an answer", answers)
	eventually(t, "the guard is stopped", func() bool {
		p.guard = p.ask("guard")
		return p.guard != 0 && unix.Kill(p.guard, unix.SIGSTOP) == nil
	})
	// The guard can still answer one order before it has stopped; and frequent orders don't
	// keep the parent from giving it up.
	eventually(t, "another guard", func() bool {
		p.tell("allow 1m", "<nil>")
		time.Sleep(50 * time.Millisecond)
		g := p.ask("guard")
		return g != 0 && g != p.guard
	})
	eventually(t, "another's answer", answers)
}

func TestNoGuard(t *testing.T) {
	p := launch(t, self("parent", "-badguard", "now", "--", "sh", "-c", "echo ran"))
	if line := p.expect(""); line != "failed sh can't be started: no such file or directory" {
		t.Error(line)
	}
	q := start(t, self("parent", "-badguard", "later", "--", "sleep", "1000"))
	if err := unix.Kill(q.guard, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	q.expect("interrupted " + ErrUnguarded.Error() + ": ")
	q.tell("unpause", ErrUnguarded.Error())
	q.kill()
	q.want("done killed by signal 9 (killed)")
}
