//go:build unix

package beads_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/repolock/repolock/locking/beads"
)

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

// TestProcesses: two processes contend for the lock, 1,000 rounds, beside two daemons that remove
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
	c.contend(1000)
	c.end()
	t.Logf("%d rounds, %d holders killed inside, %d contenders killed at any point, %d stale locks removed by daemons",
		c.count["inside"], c.count["killed inside"], c.count["killed at any point"], c.count["removed"])
	if c.count["killed at any point"] == 0 {
		t.Error("no contender was killed")
	}
	b := client(t, dir, beads.Options{Clock: tomorrow{new(beads.Leap)}})
	if err := b.Release(t.Context(), acquire(t, b)); err != nil {
		t.Error(err)
	}
	if err := b.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// tomorrow is a clock whose date is later.
type tomorrow struct{ *beads.Leap }

func (c tomorrow) Now() time.Time { return c.Leap.Now().Add(25 * time.Hour) }
