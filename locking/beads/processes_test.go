//go:build unix

package beads

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/rounds"
)

// contenderEnv names the directory in which this process contends for the lock until its stdin ends.
const contenderEnv = "REPOLOCK_TEST_BEADS"

func TestMain(m *testing.M) {
	dir := os.Getenv(contenderEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("error", contend(dir))
	os.Exit(1)
}

// contend acquires and releases the lock for ever.
func contend(dir string) error {
	b, err := New(dir, Options{Clock: new(leap)})
	if err != nil {
		return err
	}
	witness, err := os.Create(dir + ".witness")
	for round := 1; err == nil; round++ {
		err = inside(b, witness, round)
	}
	return err
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

// line is one line of a contender's output. The last one, without text, follows its end.
type line struct {
	*contender
	text string
}

type contender struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	killed bool
}

// crowd is the processes of TestProcesses.
type crowd struct {
	*testing.T
	dir     string
	lines   chan line
	started []*contender
	reading sync.WaitGroup
}

func (c *crowd) start() {
	c.Helper()
	p := &contender{cmd: exec.CommandContext(c.Context(), os.Args[0])}
	p.cmd.Env = append(os.Environ(), contenderEnv+"="+c.dir)
	p.cmd.Stderr = os.Stderr
	stdin, err1 := p.cmd.StdinPipe()
	stdout, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, p.cmd.Start()); err != nil {
		c.Fatal(err)
	}
	p.stdin = stdin
	c.started = append(c.started, p)
	c.reading.Go(func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			c.lines <- line{p, lines.Text()}
		}
		_ = p.cmd.Wait()
		c.lines <- line{contender: p}
	})
}

// kill kills a contender, and starts another one.
func (c *crowd) kill(p *contender) {
	if err := p.cmd.Process.Kill(); err != nil {
		c.Error(err)
	}
	p.killed = true
	c.start()
}

// end ends all contenders at any point, and waits for them.
func (c *crowd) end() {
	for _, p := range c.started {
		p.stdin.Close()
	}
	go func() {
		c.reading.Wait()
		close(c.lines)
	}()
	for l := range c.lines {
		if strings.HasPrefix(l.text, "error") {
			c.Error(l.text)
		}
	}
}

// TestProcesses: two processes contend for the lock. One is killed in each 25th of its attempts, if
// it holds the lock then, and in others at any point. Never do two hold it, nor does a holder lose it, and nothing is
// left.
func TestProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".beads")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c := &crowd{T: t, dir: dir, lines: make(chan line, 100)}
	c.start()
	c.start()
	held, inside, anywhere := 0, 0, 0
	for held < rounds.Fewer(1000, 200) && !t.Failed() {
		var l line
		select {
		case l = <-c.lines:
		case <-time.After(5 * time.Minute):
			t.Fatalf("no progress beside the lock %s", lockText(t, dir))
		}
		switch {
		case l.killed:
		case l.text == "kill me":
			inside++
			c.kill(l.contender)
		case l.text == "inside":
			if held++; held%40 == 0 {
				anywhere++
				c.kill(l.contender)
			}
		default:
			t.Errorf("a process has ended: %s", l.text)
		}
	}
	c.end()
	t.Logf("%d rounds, %d holders killed inside, %d contenders killed at any point", held, inside, anywhere)
	if anywhere == 0 {
		t.Error("no contender was killed")
	}
	b := client(t, dir, Options{Clock: tomorrow{new(leap)}})
	lockcheck.Release(t, b, lockcheck.Acquire(t, b, Key, ttl))
	if err := b.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	left(t, dir)
}

// tomorrow is a clock whose date is later.
type tomorrow struct{ *leap }

func (c tomorrow) Now() time.Time { return c.leap.Now().Add(25 * time.Hour) }
