//go:build unix

package beads_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/beadsdaemon"
	"github.com/repolock/repolock/locking/beads"
)

// TestKilledHolder: the lock of another process is held while that process runs, or is stopped.
// Once it was killed, the next acquires the lock, and the daemon skips the database for it.
func TestKilledHolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".beads")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	out := make(chan line, 100)
	p := start(t, "holder", dir, out)
	if l := next(t, dir, out); l.text != "held" {
		t.Fatal(l.text)
	}
	b := client(t, dir, beads.Options{Holder: "next"})
	refused := func(when string) {
		t.Helper()
		if _, ok, err := b.TryLock(t.Context(), beads.Key, ttl); ok || err != nil {
			t.Errorf("%s: acquired %v, %v", when, ok, err)
		}
		if skip, holder, err := (beadsdaemon.Daemon{}).ShouldSkipDatabase(dir); !skip || holder != "repolock" || err != nil {
			t.Errorf("%s: the daemon: %v, %q, %v", when, skip, holder, err)
		}
	}
	refused("while it runs")
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	refused("while it is stopped")

	killed := clock.System{}.Elapsed()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if l := next(t, dir, out); l.text != "" {
		t.Fatal(l.text)
	}
	gone := clock.System{}.Elapsed()
	own, err := beads.New(dir, beads.Options{Holder: "next"}) // with the machine's clock
	if err != nil {
		t.Fatal(err)
	}
	h := acquire(t, own)
	t.Logf("after SIGKILL the process was waited for in %v, and the lock was acquired %v later",
		(gone - killed).Round(time.Microsecond), (clock.System{}.Elapsed() - gone).Round(time.Microsecond))
	if skip, holder, err := (beadsdaemon.Daemon{}).ShouldSkipDatabase(dir); !skip || holder != "next" || err != nil {
		t.Errorf("the daemon: %v, %q, %v", skip, holder, err)
	}
	if err := own.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// TestProcesses: two processes contend for the lock, 1,000 rounds, beside two daemons that remove
// stale locks. A contender is killed in each 25th of its rounds while it holds the lock, and in
// others at any point. Never do two hold it, nor does a holder lose it, and nothing is left.
func TestProcesses(t *testing.T) {
	const rounds = 1000
	dir := filepath.Join(t.TempDir(), ".beads")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	out := make(chan line, 100)
	running := make(map[*process]bool)
	contend := func() { running[start(t, "contender", dir, out)] = true }
	put(t, dir, func(m map[string]any) { m["pid"] = ended(t) })
	for i := range daemons {
		running[start(t, "daemon", fmt.Sprintf("%s,%d", dir, i), out)] = true
	}
	if l := next(t, dir, out); l.text != "removed" { // the daemons run
		t.Fatal(l.text)
	}
	contend()
	contend()
	count := make(map[string]int)
	kill := func(p *process, how string) {
		if !running[p] {
			return // a line of a process that was killed
		}
		if err := p.Process.Kill(); err != nil {
			t.Error(err)
		}
		delete(running, p)
		count[how]++
		contend()
	}
	for count["inside"] < rounds && !t.Failed() {
		l := next(t, dir, out)
		count[l.text]++
		switch l.text {
		case "inside":
			if count["inside"]%40 == 0 {
				kill(l.process, "killed at any point")
			}
		case "kill me":
			kill(l.process, "killed inside")
		case "removed":
		case "":
			if running[l.process] {
				t.Error("a process has ended")
			}
		default:
			t.Error(l.text)
		}
	}
	for p := range running {
		p.stdin.Close()
	}
	for len(running) > 0 {
		l := next(t, dir, out)
		switch l.text {
		case "":
			delete(running, l.process)
		case "inside", "kill me", "removed":
		default:
			t.Error(l.text)
		}
	}
	t.Logf("%d rounds, %d holders killed inside, %d contenders killed at any point, %d stale locks removed by daemons",
		count["inside"], count["killed inside"], count["killed at any point"], count["removed"])
	if count["killed inside"] == 0 {
		t.Error("no holder was killed")
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
