//go:build linux

package procgroup

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/clock"
)

// We are stopped, and can do nothing.
func TestStopsAtExpiry(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "-until", "1500ms", "--"), k.args()))
	k.runs()
	p.signal(unix.SIGSTOP)
	sleepUntil(p.until + slack)
	if ticks := k.all(); ticks[len(ticks)-1] < p.until-slack {
		t.Error("it was stopped long before")
	}
	k.quiet(300 * time.Millisecond)

	// If another process continues the group, the guard stops it again.
	for range 3 {
		if err := unix.Kill(-p.pgid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(stopInterval + 100*time.Millisecond)
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
		k := newTicker(t)
		p := launch(t, concat(self("parent", "-halt", "-until", "1s", "-expiry", expiry, "--"), k.args()))
		p.expect("forked")
		time.Sleep(1500 * time.Millisecond)
		if ticks := k.all(); len(ticks) > 0 {
			t.Errorf("expiry %s: it ran %d times before a guard watched it", expiry, len(ticks))
		}
		p.signal(unix.SIGCONT)
		if expiry == "nothing" {
			p.expect("started")
			k.runs()
			continue
		}
		p.want("failed " + ErrExpired.Error())
		if ticks := k.all(); len(ticks) > 0 {
			t.Errorf("expiry %s: it ran %d times after its time", expiry, len(ticks))
		}
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
	p := start(t, concat(self("parent", "-until", "500ms", "-expiry", "kill", "--", "sh", "-c", `"$@" & wait`, "sh"), k.args()))
	p.want("done killed by signal 9 (killed)")
	k.still(p.until+slack, p.until+time.Hour)
	if elapsed() < p.until {
		t.Error("too early")
	}
}

func TestDoesNothingAtExpiry(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "-until", "100ms", "-expiry", "nothing", "--"), k.args()))
	sleepUntil(p.until + slack)
	k.runs()
	p.signal(unix.SIGKILL)
	eventually(t, "the end", func() bool { return running(p.pgid) == 0 })
}

func TestAllowanceIsExtended(t *testing.T) {
	k := newTicker(t)
	p := start(t, concat(self("parent", "-until", "500ms", "--"), k.args()))
	p.tell("allow 2s", "<nil>")
	end := elapsed() + 2*time.Second
	sleepUntil(end + slack)
	if ticks := k.all(); len(ticks) == 0 || ticks[len(ticks)-1] < p.until+slack {
		t.Error("stopped at the first allowance's end")
	}
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
		guard := p.ask("guard")
		if err := unix.Kill(guard, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another guard", func() bool { g := p.ask("guard"); return g != 0 && g != guard })
		p.tell("unpause", "<nil>") // it has answered
	}
	// The next one knows the allowance from the start.
	p.tell("allow 1s", "<nil>")
	at := elapsed() + time.Second
	guard := p.ask("guard")
	if err := unix.Kill(guard, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another guard", func() bool { g := p.ask("guard"); return g != 0 && g != guard })
	p.signal(unix.SIGSTOP)
	sleepUntil(at + slack)
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
	p.tell("unpause", "<nil>")
	// On a busy machine a guard can be given up before it has answered.
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
	p.tell("unpause", "<nil>")
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

// The guard's own decisions, on a clock of the test.

type fakeGuard struct {
	orders  *io.PipeWriter
	answers heard
	sleep   atomic.Int64 // how much the machine was suspended
	step    atomic.Int64 // of the wall clock
	mu      sync.Mutex
	signals []string
	start   time.Time
	seq     uint64
	done    chan struct{}
}

// heard are answers. A guard doesn't wait until they are read.
type heard chan guardAnswer

func (h heard) Write(record []byte) (int, error) {
	var a guardAnswer
	err := receive(bytes.NewReader(record), &a)
	h <- a
	return len(record), err
}

func newFakeGuard() *fakeGuard {
	or, ow := io.Pipe()
	f := &fakeGuard{orders: ow, answers: make(heard, 100), start: time.Now(), done: make(chan struct{})}
	go func() {
		defer close(f.done)
		watch(or, f.answers, f.read, func(pid int, sig unix.Signal) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.signals = append(f.signals, fmt.Sprintf("%v %d %v", f.elapsed(), pid, sig))
			return nil
		})
	}()
	return f
}

func (f *fakeGuard) elapsed() time.Duration {
	return time.Since(f.start) + time.Duration(f.sleep.Load())
}

// epoch is the wall clock when a fake guard starts.
const epoch = 946684800 * time.Second

func (f *fakeGuard) read() clock.Reading {
	e := f.elapsed()
	return clock.Reading{Wall: epoch + e + time.Duration(f.step.Load()), Elapsed: e}
}

// allow sends an order for a lock that was seen just now.
func (f *fakeGuard) allow(t *testing.T, e Expiry, until time.Duration) guardAnswer {
	t.Helper()
	return f.order(t, e, Allowance{until, f.read()})
}

func (f *fakeGuard) answer(t *testing.T) guardAnswer {
	t.Helper()
	select {
	case a := <-f.answers:
		return a
	case <-time.After(10 * time.Second):
		t.Fatal("no answer")
		return guardAnswer{}
	}
}

func (f *fakeGuard) order(t *testing.T, e Expiry, allowance Allowance) guardAnswer {
	t.Helper()
	f.seq++
	if err := write(f.orders, guardOrder{orderMagic, e, 77, allowance, f.seq}); err != nil {
		t.Fatal(err)
	}
	a := f.answer(t)
	if a.Seq != f.seq {
		t.Fatal(a)
	}
	synctest.Wait()
	return a
}

func (f *fakeGuard) want(t *testing.T, signals ...string) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.signals, signals) {
		t.Errorf("got %q, want %q", f.signals, signals)
	}
	f.signals = nil
}

func TestWatchStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeGuard()
		f.allow(t, Stop, 3200*time.Millisecond)
		time.Sleep(3100 * time.Millisecond)
		f.want(t)
		time.Sleep(400 * time.Millisecond)
		f.want(t, "3.2s -77 stopped (signal)", "3.4s -77 stopped (signal)")
		if a := f.allow(t, Stop, time.Second); a.Stopped {
			t.Error("this allowance is over: it is still stopped")
		}
		f.want(t, "3.5s -77 stopped (signal)")
		if a := f.allow(t, Stop, 5*time.Second); !a.Stopped {
			t.Error("it must say that it had stopped the group")
		}
		if a := f.allow(t, Stop, 5*time.Second); a.Stopped {
			t.Error("but only once")
		}
		time.Sleep(1400 * time.Millisecond)
		f.want(t)
		f.orders.Close()
		<-f.done
		f.want(t, "4.9s -77 killed")
	})
}

func TestWatchAfterSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeGuard()
		f.allow(t, Kill, time.Minute)
		time.Sleep(100 * time.Millisecond)
		f.sleep.Store(int64(time.Hour))
		time.Sleep(500 * time.Millisecond)
		f.want(t, "1h0m0.5s -77 killed")
		f.orders.Close()
		<-f.done
	})
}

// The guard ignores orders for groups 0 and 1 and typed lines.
func TestWatchRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, o := range []guardOrder{{orderMagic, 0, 1, Allowance{}, 1}, {orderMagic, 0, 0, Allowance{}, 1}, {orderMagic, 0, -5, Allowance{}, 1}, {1, 0, 77, Allowance{}, 1}} {
			f := newFakeGuard()
			if err := write(f.orders, o); err != nil {
				t.Fatal(err)
			}
			<-f.done
			f.want(t)
		}
		f := newFakeGuard()
		f.orders.Close() // we died before anything was started
		<-f.done
		f.want(t)
	})
}
