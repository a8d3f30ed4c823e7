//go:build linux && system

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/audit"
)

func init() { programs["as-root"] = asRoot }

// asRoot is a setuid program that becomes root altogether, as sudo does, so that no other
// user may signal it. It writes its pid, and ticks until there is a file "end".
func asRoot() {
	if err := syscall.Setreuid(0, 0); err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat("end"); err == nil {
			return
		}
		f, err := os.OpenFile("root-ticks", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(f, os.Getpid())
		f.Close()
		time.Sleep(50 * time.Millisecond)
	}
}

// newSetuid is an outage in which the command runs a process of root's, repolock being
// run by another user.
func newSetuid(t *testing.T) *outage {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test must be run as root, who can make a setuid program")
	}
	o := newOrdinaryOutage(t)
	copyFile(t, os.Args[0], o.path("as-root"), 0o755|os.ModeSetuid)
	return o
}

// rootTicks reports whether root's process runs, and which it is.
func (o *outage) rootTicks() (pid int, runs bool) {
	read := func() (lines []string) {
		text, _ := os.ReadFile(o.path("root-ticks"))
		return strings.Fields(string(text))
	}
	before := len(read())
	time.Sleep(time.Second)
	after := read()
	if len(after) == before {
		return 0, false
	}
	pid, _ = strconv.Atoi(after[len(after)-1])
	return pid, true
}

// A process of the command can't be signalled, and the others can: it is told that it
// runs on, again and again, when the others are stopped and when they are killed.
func TestCannotBeSignalled(t *testing.T) {
	o := newSetuid(t)
	o.start("prune", "--ttl", "10s", "--resume-for", "25s", "--audit", o.path("log"), "--",
		"sh", "-c", "./as-root & while :; do echo >>ticks; sleep 0.1; done")
	o.until("the command to run", o.ticks)
	pid, runs := o.rootTicks()
	if !runs {
		t.Fatal("root's process doesn't run")
	}
	o.rename("repo", "away")
	o.until("the command to be stopped", func() bool { return !o.ticks() })
	stopped := fmt.Sprintf("repolock: warning: 1 process of the command can't be stopped: pid %d; it runs on without the lock\n", pid)
	killed := strings.Replace(stopped, "stopped", "killed", 1)
	o.until("that to be said", func() bool { return o.says(stopped) })
	if _, runs := o.rootTicks(); !runs {
		t.Error("root's process was stopped")
	}
	o.until("that to be said again", func() bool { return strings.Count(o.output.String(), stopped) > 1 })
	o.until("the rest to be killed", func() bool { return o.says(killed) })
	if _, runs := o.rootTicks(); !runs {
		t.Error("root's process was killed")
	}
	if code := o.code(); code != exitLost {
		t.Errorf("exit code %d", code)
	}
	var reasons []string
	for _, r := range o.records() {
		if r.Event == audit.RunsOn && slices.Equal(r.PIDs, []int{pid}) && r.RequestID != "" {
			reasons = append(reasons, r.Reason)
		}
	}
	if got := strings.Join(slices.Compact(slices.Clone(reasons)), " "); got != audit.NotStopped+" "+audit.NotKilled || len(reasons) < 3 {
		t.Errorf("logged: %q", reasons)
	}
}

// No process of the command can be signalled.
func TestNoneCanBeSignalled(t *testing.T) {
	for onLost, what := range map[string]string{"kill": "killed", "term": "killed", "pause": "stopped"} {
		t.Run(onLost, func(t *testing.T) {
			o := newSetuid(t)
			o.start("prune", "--ttl", "10s", "--on-lost", onLost, "--audit", o.path("log"), "--", "./as-root")
			o.until("the command to run", func() bool { _, runs := o.rootTicks(); return runs })
			o.rename("repo", "away")
			said := func() bool {
				return o.says(fmt.Sprintf("1 process of the command can't be %s: pid ", what)) && o.says("; it runs on without the lock")
			}
			o.until("that to be said", said)
			if _, runs := o.rootTicks(); !runs {
				t.Error("it was stopped")
			}
			want := exitLost
			if onLost == "pause" { // the lock can be had back, and is held by the time that it ends
				o.rename("away", "repo")
				o.until("the lock to be resumed", func() bool { return o.says("the lock was resumed") })
				want = 0
			}
			if code := o.code(); code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
		})
	}
}
