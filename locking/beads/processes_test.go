//go:build unix

package beads

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/beadsdaemon"
	"github.com/repolock/repolock/internal/test/rounds"
)

// This program is also the other processes of its tests. roleEnv names what a process does, and
// the directory. Each ends with its stdin.
const roleEnv = "REPOLOCK_TEST_BEADS"

var roles = map[string]func(dir string) error{"contender": contender, "daemon": daemon}

func TestMain(m *testing.M) {
	role, dir, ok := strings.Cut(os.Getenv(roleEnv), ":")
	if !ok {
		os.Exit(m.Run())
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("error", roles[role](dir))
	os.Exit(1)
}

// daemons is how many daemons run beside contenders. Each has the flock of a file of its own
// while it looks and removes.
const daemons = 2

func gate(dir string, daemon int) string { return fmt.Sprintf("%s.daemon-%d", dir, daemon) }

// daemon runs sync cycles. dir ends with a comma and its number.
func daemon(dir string) error {
	dir, number, _ := strings.Cut(dir, ",")
	for {
		err := locked(gate(dir, int(number[0]-'0')), func() error {
			log := new(strings.Builder)
			beadsdaemon.Daemon{Log: log}.Cycle(dir)
			if strings.HasPrefix(log.String(), "Removed ") {
				fmt.Println("removed")
			}
			return nil
		})
		if err != nil {
			return err
		}
		<-time.After(time.Millisecond)
	}
}

// contender acquires and releases the lock for ever. Where TryLock gives a daemon 100 ms to end
// its cycle, this waits for the daemons themselves: so they are in time on any machine.
func contender(dir string) error {
	var broken error
	clock := &leap{until: func() {
		for i := range daemons {
			if err := locked(gate(dir, i), func() error { return nil }); err != nil {
				broken = err
			}
		}
	}}
	b, err := New(dir, Options{Clock: clock})
	if err != nil {
		return err
	}
	witness, err := os.Create(dir + ".witness")
	if err != nil {
		return err
	}
	for round := 1; broken == nil; round++ {
		if err := inside(b, witness, round); err != nil {
			return err
		}
	}
	return broken
}

// inside acquires the lock, if it is free, and takes the witness, which no other holder can have.
func inside(b *Backend, witness *os.File, round int) error {
	h, ok, err := b.TryLock(context.Background(), Key, ttl)
	if err != nil {
		return err
	}
	if !ok {
		<-time.After(time.Millisecond)
		return nil
	}
	if err := syscall.Flock(int(witness.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("two holders: %w", err)
	}
	fmt.Println("inside")
	if round%25 == 0 {
		fmt.Println("kill me")
		select {}
	}
	if err := b.Renew(context.Background(), h); err != nil {
		return err
	}
	if err := syscall.Flock(int(witness.Fd()), syscall.LOCK_UN); err != nil {
		return err
	}
	return b.Release(context.Background(), h)
}

// locked runs f with the flock of a file, and waits for it.
func locked(path string, f func() error) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return err
	}
	return f()
}

// process is another process of a test.
type process struct {
	*exec.Cmd
	stdin io.Closer
}

// line is one line of a process's output. The last one, without text, follows its end.
type line struct {
	*process
	text string
}

// start starts a process, whose lines are sent to out.
func start(t *testing.T, role, dir string, out chan<- line) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(t.Context(), exe)}
	p.Env = append(os.Environ(), roleEnv+"="+role+":"+dir)
	p.Stderr = os.Stderr
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			out <- line{p, lines.Text()}
		}
		_ = p.Wait()
		out <- line{process: p}
	}()
	return p
}

// next returns the next line of any process.
func next(t *testing.T, dir string, out <-chan line) line {
	t.Helper()
	select {
	case l := <-out:
		return l
	case <-time.After(5 * time.Minute):
		body, err := os.ReadFile(filepath.Join(dir, Key))
		t.Fatalf("no progress beside the lock %s, %v", body, err)
	}
	return line{}
}

// crowd is the processes of TestProcesses.
type crowd struct {
	*testing.T
	dir     string
	out     chan line
	running map[*process]bool // false: it was killed, and hasn't ended yet
	count   map[string]int
}

func (c *crowd) start(role, arg string) { c.running[start(c.T, role, arg, c.out)] = true }

// kill kills a contender, and starts another one.
func (c *crowd) kill(p *process, how string) {
	if !c.running[p] {
		return // a line of a process that was killed
	}
	if err := p.Process.Kill(); err != nil {
		c.Error(err)
	}
	c.running[p] = false
	c.count[how]++
	c.start("contender", c.dir)
}

// contend lets the processes contend until the lock was acquired so often.
func (c *crowd) contend(rounds int) {
	for c.count["inside"] < rounds && !c.Failed() {
		l := next(c.T, c.dir, c.out)
		c.count[l.text]++
		switch l.text {
		case "inside":
			if c.count["inside"]%40 == 0 {
				c.kill(l.process, "killed at any point")
			}
		case "kill me":
			c.kill(l.process, "killed inside")
		case "removed":
		case "":
			if c.running[l.process] {
				c.Error("a process has ended")
			}
			delete(c.running, l.process)
		default:
			c.Error(l.text)
		}
	}
}

// end ends all processes at any point, and waits for them and for those that were killed.
func (c *crowd) end() {
	for p := range c.running {
		p.stdin.Close()
	}
	for len(c.running) > 0 {
		l := next(c.T, c.dir, c.out)
		switch l.text {
		case "":
			delete(c.running, l.process)
		case "inside", "kill me", "removed":
		default:
			c.Error(l.text)
		}
	}
}

// tomorrow is a clock whose date is later.
type tomorrow struct{ *leap }

func (c tomorrow) Now() time.Time { return c.leap.Now().Add(25 * time.Hour) }

// TestProcesses: two processes contend for the lock beside two daemons that remove
// stale locks. A contender is killed in each 25th of its attempts, if it holds the lock then, and
// in others at any point. Never do two hold it, nor does a holder lose it, and nothing is left.
func TestProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".beads")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c := &crowd{t, dir, make(chan line, 100), make(map[*process]bool), make(map[string]int)}
	put(t, dir, func(m map[string]any) { m["pid"] = ended(t) })
	for i := range daemons {
		c.start("daemon", fmt.Sprintf("%s,%d", dir, i))
	}
	if l := next(t, dir, c.out); l.text != "removed" { // the daemons run
		t.Fatal(l.text)
	}
	c.start("contender", dir)
	c.start("contender", dir)
	c.contend(rounds.Fewer(1000, 200))
	c.end()
	t.Logf("%d rounds, %d holders killed inside, %d contenders killed at any point, %d stale locks removed by daemons",
		c.count["inside"], c.count["killed inside"], c.count["killed at any point"], c.count["removed"])
	if c.count["killed at any point"] == 0 {
		t.Error("no contender was killed")
	}
	b := client(t, dir, Options{Clock: tomorrow{new(leap)}})
	if err := b.Release(t.Context(), acquire(t, b)); err != nil {
		t.Error(err)
	}
	if err := b.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	left(t, dir)
}
